"""The large server model: its head comes from the clients before it learns, and goes back to all of them after."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import fedfuse
from fedfuse.algorithm import LargeModel
from fedfuse.algorithms import ALGORITHMS, fed_et, fedavg
from fedfuse.engines import InProcess
from fedfuse.fusion import SGD, SWA, AdamCosine, Distilled, LargeServer, VarianceWeighted
from fedfuse.models.shared_head import head_of
from fedfuse.round import run_round
from fedfuse.runs.setup import set_up
from fedfuse.testing import answers, model_of, small_context
from fedfuse.types import FedfuseError, ServerState
from fedfuse.vet import Vetting

STILL = SGD(lr=1e-30, steps=1, batch_size=32, momentum=0.0)  # a step that moves nothing
SMALL = fed_et(steps=8, batch_size=32, head=8, probe=20)


def still() -> fedfuse.Algorithm:
    return replace(SMALL, fuse=replace(SMALL.fuse, distiller=STILL))  # type: ignore[type-var]


def close(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name, tensor in a.items():
        torch.testing.assert_close(tensor, b[name], msg=name)


def test_all_heads_start_from_one_draw() -> None:
    models = small_context(SMALL, ("mlp:8", "mlp:6")).initial()
    heads = [head_of(model.params) for model in models.values()]
    assert len(heads) == 3
    for head in heads[1:]:
        assert head.keys() == heads[0].keys()
        assert all(torch.equal(head[name], heads[0][name]) for name in head)
    other = replace(small_context(SMALL, ("mlp:8", "mlp:6")), seed=99).initial()
    assert not torch.equal(head_of(other["mlp:8+head8"].params)["head.0.weight"], heads[0]["head.0.weight"])


def test_the_servers_gradients_are_clipped_and_its_start_is_no_candidate() -> None:
    assert fed_et().fuse.distiller.clip == 5.0
    assert fed_et(clip=1.0).fuse.distiller.clip == 1.0
    assert fed_et().fuse.distiller.keep_start is False
    assert fed_et(keep_start=True).fuse.distiller.keep_start is True


def test_heads_are_averaged_alike_and_copied_back() -> None:
    algorithm = still()
    ctx = small_context(algorithm, ("mlp:8", "mlp:6"))
    server = ServerState(0, ctx.initial())
    updates = answers(algorithm, server, ctx)
    fused, _ = algorithm.fuse(server, updates, ctx)
    heads = [head_of(model_of(u).params) for u in updates]
    mean = {name: torch.stack([head[name] for head in heads]).mean(0) for name in heads[0]}
    assert ctx.server == "mlp:16+head8"
    assert fused.models.keys() == {"mlp:8+head8", "mlp:6+head8", "mlp:16+head8"}
    for model in fused.models.values():
        close(head_of(model.params), mean)


def test_small_models_are_plain_means_and_the_large_ones_trunk_is_its_own() -> None:
    algorithm = still()
    ctx = small_context(algorithm, ("mlp:8", "mlp:6"))
    server = ServerState(0, ctx.initial())
    updates = answers(algorithm, server, ctx)
    fused, _ = algorithm.fuse(server, updates, ctx)
    trunk = "trunk.0.1.weight"
    mine = [model_of(u).params[trunk] for u in updates if ctx.archs[u.client] == "mlp:8+head8"]
    assert len(mine) == 2
    torch.testing.assert_close(fused.models["mlp:8+head8"].params[trunk], torch.stack(mine).mean(0))
    assert torch.equal(fused.models["mlp:16+head8"].params[trunk], server.models["mlp:16+head8"].params[trunk])


def test_an_architecture_without_a_client_keeps_its_trunk_and_gets_the_head() -> None:
    ctx = small_context(SMALL, ("mlp:8", "mlp:6"))
    server = ServerState(0, ctx.initial())
    fused, _ = SMALL.fuse(server, [answers(SMALL, server, ctx)[0]], ctx)
    absent = fused.models["mlp:6+head8"]
    assert torch.equal(absent.params["trunk.1.weight"], server.models["mlp:6+head8"].params["trunk.1.weight"])
    close(head_of(absent.params), head_of(fused.models["mlp:16+head8"].params))
    close(head_of(absent.params), head_of(fused.models["mlp:8+head8"].params))


def test_the_large_model_is_reported_and_the_small_ones_beside_it() -> None:
    ctx = small_context(SMALL, ("mlp:8", "mlp:6"))
    server = ServerState(0, ctx.initial())
    fused, record = run_round(SMALL, server, InProcess(), [0, 1, 2, 3], Vetting(), ctx)
    assert record.models.keys() == fused.models.keys()
    assert record.test_accuracy == record.models["mlp:16+head8"].accuracy
    # Only small models travel: two of each architecture, up and down, with their heads.
    sizes = [sum(t.numel() for t in server.models[arch].params.values()) for arch in ctx.archs]
    assert record.params_up == record.params_down == sum(sizes)
    assert record.facts.students.keys() == {"mlp:16+head8"}


def test_it_learns_over_rounds() -> None:
    algorithm = fed_et(steps=60, batch_size=32, lr=0.05, head=16)
    ctx = small_context(algorithm, ("mlp:8", "mlp:6"), rounds=6)
    server, engine, seen = ServerState(0, ctx.initial()), InProcess(), []
    for number in range(1, 7):
        server, record = run_round(algorithm, server, engine, [0, 1, 2, 3], Vetting(), ctx.at(number))
        seen.append(record.test_accuracy)
    # Chance is a third. The clusters overlap: over 12 seeds it ends at 0.77 in the mean, between 0.73 and 0.80.
    assert seen[-1] > 0.7


def test_samples_teach_too_and_other_distillers_learn() -> None:
    for algorithm, teachers in (
        (fed_et(samples=3, steps=8, batch_size=32, probe=20), 4 + 2 * 3),
        (fed_et(distiller=SWA(epochs=2, cycle=2, swa_start=1, batch_size=32), probe=20), 4),
        (fed_et(distiller=AdamCosine(steps=8, batch_size=32), probe=20), 4),
    ):
        ctx = small_context(algorithm, ("mlp:8", "mlp:6"))
        server = ServerState(0, ctx.initial())
        _, facts = algorithm.fuse(server, answers(algorithm, server, ctx), ctx)
        assert facts.teachers == teachers


def test_feddf_can_take_the_variance_weighted_consensus() -> None:
    algorithm = ALGORITHMS["feddf"](target=VarianceWeighted(), steps=8, batch_size=32, probe=20)
    assert isinstance(algorithm.fuse, Distilled)
    assert algorithm.fuse.target == VarianceWeighted()
    ctx = small_context(algorithm)
    server = ServerState(0, ctx.initial())
    fused, _ = algorithm.fuse(server, answers(algorithm, server, ctx), ctx)
    assert fused.models.keys() == {"mlp:8"}


def test_over_another_base() -> None:
    algorithm = fed_et(over=ALGORITHMS["fedprox"](mu=0.5), steps=8)
    assert algorithm.local == ALGORITHMS["fedprox"](mu=0.5).local
    assert algorithm.selection == "proportional"


def test_without_a_model_of_its_own_or_a_shared_head_it_says_what_to_set() -> None:
    ctx = small_context(fedavg())
    server = ServerState(0, ctx.initial())
    with pytest.raises(FedfuseError, match=r"models\.server"):
        LargeServer().start(server, ctx)
    headless = replace(SMALL, models=LargeModel())
    ctx = small_context(headless)
    server = ServerState(0, ctx.initial())
    with pytest.raises(FedfuseError, match="do not end in the same head"):
        headless.fuse(server, answers(headless, server, ctx), ctx)


def experiment(**models: object) -> fedfuse.Experiment:
    return fedfuse.Experiment(
        data={"source": "synthetic", "examples": 200, "pool": {"kind": "noise", "size": 100}},
        models={"clients": {"mlp:8": 1, "mlp:6": 1}, **models},
        local={"epochs": 1},
        algorithm="fed-et",
    )


def test_an_experiment_names_the_large_model() -> None:
    made = experiment(server="mlp:32")
    ctx = set_up(made, fedfuse.check(made).federation).ctx
    assert ctx.server == "mlp:32+head128"
    assert set(ctx.archs) == {"mlp:8+head128", "mlp:6+head128"}
    with pytest.raises(
        FedfuseError, match=r"models\.server = None: fed-et: this algorithm trains a large model at the server"
    ):
        fedfuse.check(experiment())
    with pytest.raises(FedfuseError, match=r"models\.server = 'mlp:8': .*choose another one"):
        fedfuse.check(experiment(server="mlp:8"))
    with pytest.raises(FedfuseError, match=r"models\.server = 'resnt8.*unknown architecture"):
        fedfuse.check(experiment(server="resnt8"))


def test_other_algorithms_leave_the_large_model_alone() -> None:
    made = experiment(server="mlp:32").with_settings({"algorithm.name": "fedavg"})
    ctx = set_up(made, fedfuse.check(made).federation).ctx
    assert ctx.server is None
    assert ctx.initial().keys() == {"mlp:8", "mlp:6"}
