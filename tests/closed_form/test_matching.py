"""Matching the neurons of a layer (FedMA), by hand and against a slow search."""

from __future__ import annotations

from itertools import permutations
from math import log

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedfuse.algorithms.fedma.matching import Matching, by_class, neurons
from fedfuse.models.chain import spread
from fedfuse.types import FedfuseError


def close(actual: Tensor, expected: object) -> None:
    torch.testing.assert_close(actual.double(), torch.as_tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)


def test_two_neurons_by_hand() -> None:
    """Two clients, unit variances, gamma = 2: both logarithms of the prior are 0, but for the order of new neurons."""
    first = torch.tensor([[0.0, 2.0], [1.0, 0.0]]).double()
    second = torch.tensor([[1.0, 0.0], [0.0, 2.0]]).double()
    # At a neuron w of the first: |v + w|^2 / 3 - |w|^2 / 2. As the k-th new one: |v|^2 / 2 - 2 log k.
    close(
        Matching(gamma=2).scores(second, first, torch.ones(2).double(), clients=2, room=2),
        [[5 / 3 - 2, 4 / 3 - 1 / 2, 1 / 2, 1 / 2 - 2 * log(2)], [16 / 3 - 2, 5 / 3 - 1 / 2, 2, 2 - 2 * log(2)]],
    )
    # 5/6 + 10/3 is the best sum of one score from each row in different columns.
    places, fused = Matching(gamma=2)([first, second])
    assert [p.tolist() for p in places] == [[0, 1], [1, 0]]
    close(fused, first)


def test_the_prior_by_hand() -> None:
    """Five clients: a neuron that three of the others share, one that one has, and new ones, all of zeros."""
    zeros = torch.zeros(2, 3).double()
    scores = Matching(gamma=7).scores(zeros, zeros, torch.tensor([3.0, 1.0]).double(), clients=5, room=2)
    close(scores[0], [2 * log(3 / 2), 2 * log(1 / 4), 2 * log(7 / 5), 2 * log(7 / 5) - 2 * log(2)])


def slow_score(w: Tensor, others: list[Tensor], sigma: float, sigma0: float) -> float:
    """Twice the gain in log density, at its maximum over theta, when w joins the others: by completing the square."""

    def best(members: list[Tensor]) -> float:
        precision = 1 / sigma0**2 + len(members) / sigma**2
        pull = sum((m / sigma**2 for m in members), torch.zeros(len(w)).double())
        return float(pull.square().sum() / precision)

    return best([*others, w]) - best(others)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), sigma=st.floats(0.3, 3), sigma0=st.floats(0.3, 3), gamma=st.floats(0.1, 20))
def test_a_client_goes_where_a_search_of_all_places_would_put_it(
    seed: int, sigma: float, sigma0: float, gamma: float
) -> None:
    draw = torch.Generator().manual_seed(seed)
    first, second = (torch.randn(3, 4, generator=draw).double() for _ in range(2))
    matching = Matching(sigma, sigma0, gamma, sweeps=0, growth=2.0)
    scores = [
        [slow_score(w, [v], sigma, sigma0) for v in first]
        + [slow_score(w, [], sigma, sigma0) + 2 * log(gamma / 2) - 2 * log(k) for k in (1, 2, 3)]
        for w in second
    ]
    close(matching.scores(second, first, torch.ones(3).double(), clients=2, room=3), scores)
    best = max(permutations(range(6), 3), key=lambda columns: sum(scores[i][c] for i, c in enumerate(columns)))
    places, fused = matching([first, second])
    shared = [c for c in best if c < 3]
    assert len(fused) == 6 - len(shared)
    for place, column, w in zip(places[1], best, second, strict=True):
        close(fused[place], w if column >= 3 else (w + first[column]) / 2)


def test_permuted_copies_are_matched_back() -> None:
    draw = torch.Generator().manual_seed(0)
    net = torch.randn(20, 9, generator=draw)
    orders = [torch.randperm(20, generator=draw) for _ in range(5)]
    for growth in (1.0, 1.5):
        places, fused = Matching(growth=growth)([net[order] for order in orders])
        assert len(fused) == 20 if growth == 1 else 20 <= len(fused) <= 30
        for place, order in zip(places, orders, strict=True):
            assert torch.equal(fused[place], net[order])


def unlike(scale: float = 3.0) -> list[Tensor]:
    """Two clients without a neuron in common: 18/3 - 9/2 = 1.5 for a match, 9/2 - 2 log k for a new one."""
    axes = scale * torch.eye(4)
    return [axes[:2], axes[2:]]


@pytest.mark.parametrize(("growth", "width"), [(1.0, 2), (1.5, 3), (2.0, 4), (10.0, 4)])
def test_unlike_neurons_become_new_ones_up_to_the_bound(growth: float, width: int) -> None:
    places, fused = Matching(gamma=2, growth=growth)(unlike())
    assert len(fused) == width
    assert all(len(set(p.tolist())) == 2 for p in places)


def test_neurons_that_more_clients_share_come_first() -> None:
    axes = 10 * torch.eye(4)
    places, fused = Matching(growth=2.0)([axes[[0, 1]], axes[[1, 2]], axes[[2, 1]]])
    assert torch.equal(fused, axes[[1, 2, 0]])
    assert [p.tolist() for p in places] == [[2, 0], [0, 1], [1, 0]]


def test_a_client_alone_is_itself() -> None:
    rows = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    places, fused = Matching()([rows])
    assert torch.equal(fused, rows)
    assert places[0].tolist() == [0, 1, 2, 3, 4]


def test_the_posterior_mean_is_pulled_to_zero() -> None:
    rows = torch.tensor([[3.0, 6.0]])
    # 2 w / (2 + sigma^2 / sigma0^2)
    close(Matching(estimate="posterior", growth=1.0)([rows, rows])[1], [[2.0, 4.0]])
    close(Matching(sigma=2.0, sigma0=1.0, estimate="posterior", growth=1.0)([rows, rows])[1], [[1.0, 2.0]])


def test_the_output_layer_is_averaged_class_by_class() -> None:
    heads = [torch.tensor([[1.0], [1.0], [1.0]]), torch.tensor([[5.0], [5.0], [5.0]])]
    # 10 and 30 examples: class 0 has 10 and 0 of them, class 1 has 0 and 30; nobody has class 2.
    shares = [torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 1.0, 0.0])]
    close(by_class(heads, [10, 30], shares), [[1.0], [5.0], [(10 * 1 + 30 * 5) / 40]])
    close(by_class(heads, [10, 30], [torch.full((3,), 0.5)] * 2), [[4.0]] * 3)
    close(by_class(heads, [10, 30], [torch.zeros(3)] * 2), [[4.0]] * 3)


def test_inputs_go_to_the_places_of_their_neurons() -> None:
    close(spread(torch.tensor([[1.0, 2.0]]), torch.tensor([2, 0]), 3), [[2.0, 0.0, 1.0]])
    # Two channels of two pixels each, flattened: the blocks move, their pixels stay in order.
    layer = {"w": torch.tensor([[1.0, 2.0, 3.0, 4.0]]), "b": torch.tensor([9.0])}
    close(neurons(layer, "w", "b", torch.tensor([2, 0]), 3), [[3.0, 4.0, 0.0, 0.0, 1.0, 2.0, 9.0]])
    filters = {"w": torch.arange(4.0).reshape(1, 2, 1, 2), "b": torch.tensor([9.0])}
    close(neurons(filters, "w", "b", torch.tensor([1, 0]), 2), [[2.0, 3.0, 0.0, 1.0, 9.0]])


@pytest.mark.parametrize("wrong", [{"sigma": 0.0}, {"sigma0": -1.0}, {"gamma": 0.0}, {"growth": 0.9}, {"sweeps": -1}])
def test_what_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(FedfuseError, match=next(iter(wrong))):
        Matching(**wrong)  # type: ignore[arg-type]
