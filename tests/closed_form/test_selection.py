"""Who takes part: how many, how often, and always the same for the same key."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfuse.context import assign
from fedfuse.select import cohort_size, select
from fedfuse.types import FedfuseError


@pytest.mark.parametrize(
    ("clients", "fraction", "size"),
    [(10, 0.4, 4), (10, 1.0, 10), (100, 0.1, 10), (7, 0.5, 4), (10, 0.01, 1), (1, 0.3, 1), (3, 0.33, 1), (20, 0.13, 3)],
)
def test_a_fraction_of_the_clients_as_a_count(clients: int, fraction: float, size: int) -> None:
    assert cohort_size(clients, fraction) == size


@given(
    st.integers(1, 40).flatmap(
        lambda n: st.tuples(st.lists(st.integers(1, 1000), min_size=n, max_size=n), st.integers(1, n))
    ),
    st.sampled_from(["uniform", "proportional"]),
    st.integers(0, 2**31),
)
def test_a_cohort_has_different_clients_in_order(case: tuple[list[int], int], how: str, seed: int) -> None:
    sizes, cohort = case
    drawn = select(torch.tensor(sizes), cohort, how, torch.Generator().manual_seed(seed))  # type: ignore[arg-type]
    assert drawn == sorted(set(drawn))
    assert len(drawn) == cohort
    assert set(drawn) <= set(range(len(sizes)))


def frequencies(how: str, cohort: int) -> list[float]:
    """How often each of four clients with 10, 20, 30 and 40 examples is in one of 4,000 cohorts."""
    sizes, draw = torch.tensor([10, 20, 30, 40]), torch.Generator().manual_seed(5)
    seen = torch.zeros(4)
    for _ in range(4000):
        seen[select(sizes, cohort, how, draw)] += 1  # type: ignore[arg-type]
    return (seen / 4000).tolist()


def test_uniform_selection_takes_every_client_as_often() -> None:
    # One in four: deviation sqrt(3/16 / 4000) = 0.007. Four of them.
    assert frequencies("uniform", 1) == pytest.approx([0.25] * 4, abs=0.028)


def test_proportional_selection_follows_sizes() -> None:
    assert frequencies("proportional", 1) == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.031)


def test_proportional_cohorts_are_drawn_one_after_the_other_without_replacement() -> None:
    # P(i in a cohort of two) = p_i + sum over j != i of p_j p_i / (1 - p_j), with p = (.1, .2, .3, .4).
    p = [0.1, 0.2, 0.3, 0.4]
    expected = [p[i] + sum(p[j] * p[i] / (1 - p[j]) for j in range(4) if j != i) for i in range(4)]
    assert sum(expected) == pytest.approx(2)
    assert frequencies("proportional", 2) == pytest.approx(expected, abs=0.032)


def test_architectures_are_spread_by_weight_to_the_nearest_client() -> None:
    # 10 clients in proportion 1 : 1 : 2 are 2.5, 2.5 and 5: one of the first two gets the odd client.
    spread = assign({"a": 1, "b": 1, "c": 2}, 10, torch.Generator().manual_seed(0))
    counts = sorted((spread.count("a"), spread.count("b")))
    assert (counts, spread.count("c")) == ([2, 3], 5)
    assert spread == assign({"a": 1, "b": 1, "c": 2}, 10, torch.Generator().manual_seed(0))
    assert spread != assign({"a": 1, "b": 1, "c": 2}, 10, torch.Generator().manual_seed(1))


def test_an_architecture_without_weight_is_refused() -> None:
    with pytest.raises(FedfuseError, match="positive weight"):
        assign({"a": 1, "b": 0}, 4, torch.Generator())
