"""SCAFFOLD's server: its arithmetic by hand, what it accepts, and what can be laid over it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import fedfuse
from fedfuse.algorithm import Algorithm
from fedfuse.algorithms.fedbe import fedbe
from fedfuse.algorithms.feddf import feddf
from fedfuse.algorithms.scaffold import scaffold
from fedfuse.algorithms.scaffold.client import CONTROL
from fedfuse.algorithms.scaffold.server import Controlled
from fedfuse.algorithms.v_distillation import v_distillation
from fedfuse.engines import InProcess
from fedfuse.fusion import Distilled, WeightedMean
from fedfuse.round import run_round
from fedfuse.types import Groups, ServerState, Update
from fedfuse.vet import Vetting
from tests.doubles import Scripted, aggregated, context, initial, snapshot, trained


def answer(client: int, model: float, change: float) -> Update:
    return Update(client, 1 + client, snapshot(model), {CONTROL: {"w": torch.tensor([change])}})


def fused(part: Controlled, *updates: Update, control: float | None = None) -> tuple[float, float]:
    """x and c after a round from x = 1, of four clients."""
    ctx = replace(context(), archs=("one",) * 4)
    memory: Groups = {} if control is None else {"control/one": {"w": torch.tensor([control])}}
    models, memory = aggregated(part, ServerState(0, {"one": snapshot(1.0)}, memory), updates, ctx)
    return models["one"].params["w"].item(), memory["control/one"]["w"].item()


def test_two_of_four_clients() -> None:
    # x: the mean of 2 and 6. c: 2/4 of the mean of 3 and 5, from 0 or from 10 on.
    assert fused(Controlled(), answer(1, 2.0, 3.0), answer(3, 6.0, 5.0)) == (4.0, 2.0)
    assert fused(Controlled(), answer(1, 2.0, 3.0), answer(3, 6.0, 5.0), control=10.0) == (4.0, 12.0)


def test_the_servers_rate() -> None:
    # From 1 half the way to 4, or twice.
    assert fused(Controlled(global_lr=0.5), answer(1, 2.0, 3.0), answer(3, 6.0, 5.0)) == (2.5, 2.0)
    assert fused(Controlled(global_lr=2.0), answer(1, 2.0, 3.0), answer(3, 6.0, 5.0)) == (7.0, 2.0)


def test_weights_by_examples() -> None:
    # The clients have 7, 23, 37 and 53 of 120 examples: c = 23/120 x 3 + 53/120 x 5 = 334/120.
    part = Controlled(WeightedMean("uniform"), weights="examples")
    x, c = fused(part, answer(1, 2.0, 3.0), answer(3, 6.0, 5.0))
    assert x == 4.0
    assert c == pytest.approx(334 / 120)


# What is refused.


def without(update: Update) -> Update:
    return replace(update, extra={})


def unknown_group(update: Update) -> Update:
    return replace(update, extra={**update.extra, "more": {"w": torch.zeros(1)}})


def changed(update: Update, change: Callable[[torch.Tensor], torch.Tensor]) -> Update:
    control = update.extra[CONTROL]
    return replace(update, extra={CONTROL: {**control, "head.bias": change(control["head.bias"])}})


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (without, "groups differ: missing ['control']"),
        (unknown_group, "unexpected ['more']"),
        (lambda u: replace(u, extra={CONTROL: {}}), "tensors of control differ"),
        (lambda u: changed(u, lambda t: t[:-1]), "head.bias is torch.float32 (2,), expected torch.float32 (3,)"),
        (lambda u: changed(u, torch.Tensor.double), "control/head.bias is torch.float64"),
        (lambda u: changed(u, lambda t: t * torch.nan), "control/head.bias is not finite"),
    ],
    ids=["missing", "unknown group", "empty", "shape", "dtype", "nan"],
)  # fmt: skip
def test_a_wrong_control_variate_costs_its_client_alone(spoil: Callable[[Update], Update], says: str) -> None:
    ctx = context()
    server = initial(ctx)
    first, *others = trained(ctx, server, scaffold(), range(3))
    after, record = run_round(scaffold(), server, Scripted([spoil(first), *others]), [0, 1, 2], Vetting(), ctx)
    assert says in record.rejected["0"]
    assert list(record.rejected) == ["0"]
    expected, _ = scaffold().fuse(server, others, ctx)
    for name, tensor in expected.memory["control/mlp:8"].items():
        assert torch.equal(after.memory["control/mlp:8"][name], tensor)


# What is laid over it.

BRIEF = {"batch_size": 32, "augment": "none", "probe": 20}


@pytest.mark.parametrize(
    "over",
    [
        feddf(over=scaffold(), steps=8, every=4, **BRIEF),  # type: ignore[arg-type]
        fedbe(over=scaffold(), epochs=2, samples=2, cycle=2, swa_start=1, **BRIEF),  # type: ignore[arg-type]
        v_distillation(over=scaffold(), epochs=2, **BRIEF),  # type: ignore[arg-type]
    ],
    ids=lambda algorithm: algorithm.name,
)
def test_distillation_over_it_keeps_the_control_variates(over: Algorithm) -> None:
    base = scaffold()
    assert (over.brief, over.local, over.expect, over.check) == (base.brief, base.local, base.expect, base.check)
    assert isinstance(over.fuse, Distilled)
    ctx = context(("mlp:8", "mlp:6:bn") * 2)
    server, engine = initial(ctx), InProcess()
    changes = []
    for number in (1, 2):
        before = server.memory.get("control/mlp:8", {})
        server, record = run_round(over, server, engine, [0, 1, 2, 3], Vetting(), ctx.at(number))
        assert record.rejected == {}
        assert {"control/mlp:8", "control/mlp:6:bn"} <= server.memory.keys()
        changes.append({n: t - before.get(n, 0) for n, t in server.memory["control/mlp:8"].items()})
    assert all(any(bool(t.any()) for t in change.values()) for change in changes)
    for name, tensor in server.memory["control/mlp:8"].items():
        held = [engine.memory()[client][CONTROL][name] for client in (0, 2)]
        torch.testing.assert_close(tensor, (held[0] + held[1]) / 2)


def test_adam_is_refused_when_the_experiment_is_checked() -> None:
    name = "fedfuse.algorithms.scaffold:scaffold"
    made = fedfuse.Experiment(
        data={"source": "synthetic", "examples": 60, "classes": 3, "shape": [4]},
        models={"clients": "mlp:6"},
        local={"epochs": 1, "optimizer": "adam"},
        algorithm={"name": name},
    )
    with pytest.raises(fedfuse.FedfuseError, match=r"set local\.optimizer"):
        fedfuse.check(made)
