"""Randomness by key: the same key the same stream, another key another, and the global generator untouched."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfuse import rng
from tests.doubles import context

parts = st.lists(st.integers(-(2**70), 2**70) | st.text(max_size=6), max_size=3).map(tuple)
keys = st.tuples(st.integers(0, 2**64), st.text(max_size=6), parts)


@given(keys, keys)
def test_two_keys_are_the_same_only_if_all_their_parts_are(a: tuple, b: tuple) -> None:  # type: ignore[type-arg]
    first, second = rng.key(a[0], a[1], *a[2]), rng.key(b[0], b[1], *b[2])
    assert (first == second) == (a == b)
    assert 0 <= first < 2**63


def test_parts_do_not_run_together() -> None:
    made = [
        rng.key(1, "a", "bc"),
        rng.key(1, "ab", "c"),
        rng.key(1, "a", "b", "c"),
        rng.key(1, "a", 12),
        rng.key(1, "a", "12"),
    ]
    assert len(set(made)) == 5


def test_the_key_is_the_same_on_every_machine() -> None:
    # Published results are found again by their seed: a change here is a change of all numbers.
    assert rng.key(0, "shuffle", 1, 2) == 5284208036402735456


def test_a_generator_starts_anew_each_time_it_is_asked_for() -> None:
    ctx = context(seed=3)
    first = torch.rand(4, generator=ctx.rng("noise", 1))
    assert torch.equal(first, torch.rand(4, generator=ctx.rng("noise", 1)))
    assert not torch.equal(first, torch.rand(4, generator=ctx.rng("noise", 2)))
    assert not torch.equal(first, torch.rand(4, generator=context(seed=4).rng("noise", 1)))


def test_ambient_draws_come_from_the_key_and_leave_the_global_generator_as_it_was() -> None:
    before = torch.random.get_rng_state()
    drawn = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        inside = torch.random.get_rng_state()
        with rng.ambient(rng.generator(0, "layers", 5)):
            drawn.append(torch.rand(3))
        assert torch.equal(torch.random.get_rng_state(), inside)
    torch.random.set_rng_state(before)
    assert torch.equal(drawn[0], drawn[1])


def test_initial_weights_depend_on_their_key_alone() -> None:
    one, two = context(), context()
    torch.manual_seed(1)
    first = one.nets.initial("mlp:8", one.rng("init", "mlp:8"))
    torch.manual_seed(2)
    two.nets.scratch("mlp:8")
    second = two.nets.initial("mlp:8", two.rng("init", "mlp:8"))
    assert all(torch.equal(t, second.params[name]) for name, t in first.params.items())
