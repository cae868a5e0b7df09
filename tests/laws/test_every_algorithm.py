"""The laws, over every algorithm that has a name: one that is added is held to them at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache

import pytest
import torch

from fedfuse import testing
from fedfuse.algorithms import ALGORITHMS
from fedfuse.context import Context
from fedfuse.facts import Facts
from fedfuse.fusion import WeightedMean
from fedfuse.testing import LAWS, Law, model_of, small_context
from fedfuse.types import FedfuseError, ServerState, Update
from tests.doubles import NORMED, aggregated, brief, context

ARCHS = {"plain": ("mlp:8",), "batch norm": ("mlp:8:bn",), "two architectures": ("mlp:8", "mlp:6")}

# Federations that an algorithm refuses before anything runs, and what it says of the reason.
REFUSED = {
    ("fedma", "batch norm"): "averaging a BatchNorm1d",
    ("fedma", "two architectures"): "mlp:8 and mlp:6",
    ("fedgkt", "two architectures"): "their shapes differ",
}

# Laws that an algorithm is not held to, and why. What holds instead is in its own tests.
EXEMPT = {
    ("fedma", "updates_are_a_stream"): "every client's neurons are matched again and again",
    ("fedgkt", "identical_clients_fuse_to_themselves"): "more features are more steps of the server's net",
    ("fedma", "identical_clients_fuse_to_themselves"): "its prior may give equal neurons two places: the same function",
}


def takes(setting: str) -> list[str]:
    return [name for name, function in ALGORITHMS.items() if setting in inspect.signature(function).parameters]


# Laws about updates that have arrived: the clients train once for all of them.
OF_UPDATES = (
    "order_does_not_matter",
    "nothing_is_aliased",
    "identical_clients_fuse_to_themselves",
    "honest_answers_are_accepted",
)


@pytest.fixture(scope="module")
def trained() -> Callable[[str, str], list[Update]]:
    """The clients' answers, by algorithm and architectures."""

    @cache
    def train(name: str, archs: str) -> list[Update]:
        algorithm = brief(name)
        ctx = small_context(algorithm, ARCHS[archs], rounds=1 if name == "one-shot" else 2)
        return testing.answers(algorithm, ServerState(0, ctx.initial()), ctx)

    return train


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)  # varies fastest
@pytest.mark.parametrize("archs", ARCHS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_keeps_the_law(
    law: Law,
    name: str,
    archs: str,
    trained: Callable[[str, str], list[Update]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    algorithm = brief(name)
    ctx = small_context(algorithm, ARCHS[archs], rounds=1 if name == "one-shot" else 2)
    if (name, archs) in REFUSED:
        with pytest.raises(FedfuseError, match=REFUSED[name, archs]):
            algorithm.check(ctx)
        return
    if (name, law.__name__) in EXEMPT:
        pytest.skip(EXEMPT[name, law.__name__])
    algorithm.check(ctx)
    if law.__name__ in OF_UPDATES:
        updates = deepcopy(trained(name, archs))
        monkeypatch.setattr(testing, "answers", lambda *given: updates)
    law(algorithm, ctx)


@pytest.mark.parametrize("policy", ["keep", "recalibrate", "last"])
@pytest.mark.parametrize("name", takes("buffers"))
@pytest.mark.parametrize("law", ["order_does_not_matter", "inputs_are_not_mutated", "nothing_is_aliased"])
def test_so_does_every_policy_for_buffers(law: str, name: str, policy: str) -> None:
    if (policy, law) == ("last", "order_does_not_matter"):
        pytest.skip("the last client's statistics are those of the last in order, by definition")
    LAWS[law](brief(name, buffers=policy), context((NORMED,) * 4, rounds=1))


# A law that nothing can break says nothing: each is shown an algorithm that breaks it.

good = WeightedMean()


def fused(server: ServerState, updates: list[Update], ctx: Context) -> ServerState:
    return replace(
        server, round=server.round + 1, models={**server.models, **aggregated(good, server, updates, ctx).models}
    )


def last_client_wins(server: ServerState, updates: list[Update], ctx: Context) -> tuple[ServerState, Facts]:
    (*_, last) = updates
    return fused(server, [last], ctx), Facts()


def gives_a_client_back(server: ServerState, updates: list[Update], ctx: Context) -> tuple[ServerState, Facts]:
    for update in updates:
        model = model_of(update)
    return replace(server, round=server.round + 1, models={**server.models, model.arch: model}), Facts()


def works_in_place(server: ServerState, updates: list[Update], ctx: Context) -> tuple[ServerState, Facts]:
    made = fused(server, updates, ctx)
    for arch, model in made.models.items():
        for name, tensor in model.params.items():
            server.models[arch].params[name].copy_(tensor)
    return made, Facts()


def keeps_them_all(server: ServerState, updates: list[Update], ctx: Context) -> tuple[ServerState, Facts]:
    return fused(server, list(updates), ctx), Facts()


def adds_noise(server: ServerState, updates: list[Update], ctx: Context) -> tuple[ServerState, Facts]:
    made = fused(server, updates, ctx)
    noisy = {
        arch: replace(m, params={n: t + torch.randn_like(t) for n, t in m.params.items()})
        for arch, m in made.models.items()
    }
    return replace(made, models=noisy), Facts()


def forgets_a_model(server: ServerState, updates: list[Update], ctx: Context) -> tuple[ServerState, Facts]:
    list(updates)
    return replace(server, round=server.round + 1, models={}), Facts()


@pytest.mark.parametrize(
    ("law", "fuse"),
    [
        ("order_does_not_matter", last_client_wins),
        ("inputs_are_not_mutated", works_in_place),
        ("nothing_is_aliased", gives_a_client_back),
        ("identical_clients_fuse_to_themselves", adds_noise),
        ("only_its_arguments_count", adds_noise),
        ("state_survives_the_codec", forgets_a_model),
        ("updates_are_a_stream", keeps_them_all),
    ],
)
def test_a_law_catches_who_breaks_it(law: str, fuse: Callable[..., object]) -> None:
    outlaw = replace(ALGORITHMS["fedavg"](), fuse=fuse)  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        LAWS[law](outlaw, context(rounds=1, epochs=2))
