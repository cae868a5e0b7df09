"""The laws, over every algorithm that has a name: one that is added is held to them at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from fedfuse.algorithm import Algorithm
from fedfuse.algorithms import ALGORITHMS
from fedfuse.context import Context
from fedfuse.fusion import WeightedMean
from fedfuse.types import ServerState, Update
from tests.doubles import NORMED, brief, context
from tests.laws import laws

Check = Callable[[Algorithm, Context], None]

CHECKS = [check for name, check in vars(laws).items() if name.startswith("check_")]
ARCHS = {"plain": ("mlp:8",) * 4, "batch norm": (NORMED,) * 4, "two architectures": ("mlp:8", "mlp:6") * 2}


def takes(setting: str) -> list[str]:
    return [name for name, function in ALGORITHMS.items() if setting in inspect.signature(function).parameters]


@pytest.mark.parametrize("archs", ARCHS.values(), ids=ARCHS)
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_every_algorithm_keeps_the_law(check: Check, name: str, archs: tuple[str, ...]) -> None:
    # One round: some algorithms have only one.
    check(brief(name), context(archs, rounds=1, epochs=2))


@pytest.mark.parametrize("policy", ["keep", "recalibrate"])
@pytest.mark.parametrize("name", takes("buffers"))
@pytest.mark.parametrize(
    "check",
    [laws.check_order_does_not_matter, laws.check_inputs_are_not_mutated, laws.check_nothing_is_aliased],
    ids=lambda check: check.__name__.removeprefix("check_"),
)
def test_so_does_every_policy_for_buffers(check: Check, name: str, policy: str) -> None:
    check(brief(name, buffers=policy), context((NORMED,) * 4, rounds=1))


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "one-shot"])
def test_what_an_algorithm_remembers_over_rounds_survives_the_codec(name: str) -> None:
    laws.check_state_is_well_formed_and_survives_the_codec(brief(name), context(rounds=3))


# A law that nothing can break says nothing: each is shown an algorithm that breaks it.

good = WeightedMean()


def fused(server: ServerState, updates: list[Update], ctx: Context) -> ServerState:
    return replace(server, round=server.round + 1, models={**server.models, **good(server, updates, ctx)[0]})


def last_client_wins(server: ServerState, updates: list[Update], ctx: Context) -> tuple[ServerState, dict[str, object]]:
    (*_, last) = updates
    return fused(server, [last], ctx), {}


def gives_a_client_back(
    server: ServerState, updates: list[Update], ctx: Context
) -> tuple[ServerState, dict[str, object]]:
    for update in updates:
        model = laws.model_of(update)
    return replace(server, round=server.round + 1, models={**server.models, model.arch: model}), {}


def works_in_place(server: ServerState, updates: list[Update], ctx: Context) -> tuple[ServerState, dict[str, object]]:
    made = fused(server, updates, ctx)
    for arch, model in made.models.items():
        for name, tensor in model.params.items():
            server.models[arch].params[name].copy_(tensor)
    return made, {}


def keeps_them_all(server: ServerState, updates: list[Update], ctx: Context) -> tuple[ServerState, dict[str, object]]:
    return fused(server, list(updates), ctx), {}


def adds_noise(server: ServerState, updates: list[Update], ctx: Context) -> tuple[ServerState, dict[str, object]]:
    made = fused(server, updates, ctx)
    noisy = {
        arch: replace(m, params={n: t + torch.randn_like(t) for n, t in m.params.items()})
        for arch, m in made.models.items()
    }
    return replace(made, models=noisy), {}


def forgets_a_model(server: ServerState, updates: list[Update], ctx: Context) -> tuple[ServerState, dict[str, object]]:
    list(updates)
    return replace(server, round=server.round + 1, models={}), {}


@pytest.mark.parametrize(
    ("check", "fuse"),
    [
        (laws.check_order_does_not_matter, last_client_wins),
        (laws.check_inputs_are_not_mutated, works_in_place),
        (laws.check_nothing_is_aliased, gives_a_client_back),
        (laws.check_identical_clients_fuse_to_themselves, adds_noise),
        (laws.check_only_its_arguments_count, adds_noise),
        (laws.check_state_is_well_formed_and_survives_the_codec, forgets_a_model),
        (laws.check_updates_are_a_stream, keeps_them_all),
    ],
)
def test_a_law_catches_who_breaks_it(check: Check, fuse: Callable[..., object]) -> None:
    outlaw = replace(ALGORITHMS["fedavg"](), fuse=fuse)  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        check(outlaw, context(rounds=1, epochs=2))
