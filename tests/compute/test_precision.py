"""Products in half precision: every algorithm runs and learns about the same, and what is stored stays float32."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import fedfuse
from fedfuse.algorithms import ALGORITHMS
from fedfuse.compute import optimizers
from fedfuse.context import Nets
from fedfuse.engines import InProcess
from fedfuse.round import run_round
from fedfuse.testing import small_context
from fedfuse.types import ServerState
from fedfuse.vet import Vetting
from tests.doubles import brief


def after(name: str, precision: torch.dtype | None) -> tuple[ServerState, float]:
    algorithm = brief(name)
    ctx = small_context(algorithm, rounds=1)
    ctx = replace(ctx, nets=Nets(ctx.nets.classes, ctx.nets.shape, precision=precision))
    server, record = run_round(
        algorithm, ServerState(0, ctx.initial()), InProcess(), [0, 1, 2, 3], Vetting(), ctx.at(1)
    )
    assert not record.rejected, record.rejected
    return server, record.test_loss


def tensors(server: ServerState) -> dict[tuple[str, str], torch.Tensor]:
    """What the server holds: its models, and its memory, since not every algorithm has models there."""
    groups = {**{arch: model.params for arch, model in server.models.items()}, **server.memory}
    return {(group, name): tensor for group, named in groups.items() for name, tensor in named.items()}


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_runs_in_half_precision(name: str, precision: torch.dtype) -> None:
    exact, loss = after(name, None)
    rough, rough_loss = after(name, precision)
    assert rough_loss == pytest.approx(loss, rel=0.05)
    assert all(t.dtype == torch.float32 for model in rough.models.values() for t in model.params.values())
    assert tensors(rough).keys() == tensors(exact).keys()
    same = [torch.equal(tensor, tensors(exact)[key]) for key, tensor in tensors(rough).items()]
    assert not all(same), "half precision changed no bit: was it used?"


def test_a_client_in_float16_skips_steps_whose_gradients_overflow() -> None:
    """With 2^40 as the first loss scale, its gradients overflow until it has been halved often enough."""
    algorithm = brief("scaffold")
    ctx = small_context(algorithm)
    ctx = replace(ctx, nets=Nets(ctx.nets.classes, ctx.nets.shape, precision=torch.float16))
    server = ServerState(0, ctx.initial())
    task = algorithm.brief(server, 3, ctx)
    steps = algorithm.local(task, {}, ctx).metrics["steps"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimizers.LossScale.__init__, "__defaults__", (2.0**40, optimizers.INTERVAL))
        update = algorithm.local(task, {}, ctx)
    assert 0 < update.metrics["steps"] < steps
    assert update.model is not None
    assert all(bool(t.isfinite().all()) for t in (*update.model.params.values(), *update.extra["control"].values()))


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_the_setting_reaches_clients_in_processes(tmp_path: Path, precision: str) -> None:
    made = fedfuse.Experiment(
        data={"source": "synthetic", "examples": 200, "classes": 3, "shape": [4]},
        partition={"clients": 4},
        models="mlp:8",
        local={"steps": 4, "batch_size": 8},
        run={"rounds": 1, "workers": 1, "precision": precision},
    )
    here = fedfuse.run(made, tmp_path / "here").models["mlp:8"].params
    apart = fedfuse.run(made.with_settings({"run.workers": 2}), tmp_path / "apart").models["mlp:8"].params
    exact = fedfuse.run(made.with_settings({"run.precision": "float32"}), tmp_path / "exact").models["mlp:8"].params
    assert all(torch.equal(tensor, apart[name]) for name, tensor in here.items())
    assert not all(torch.equal(tensor, exact[name]) for name, tensor in here.items())


def test_tf32_is_on_during_the_run_only(tmp_path: Path) -> None:
    seen = list[str]()

    class Looks:
        def begin(self, run: object, history: object) -> None: ...

        def round(self, record: object) -> None:
            seen.append(torch.get_float32_matmul_precision())

        def end(self, history: object) -> None: ...

    made = fedfuse.Experiment(
        data={"source": "synthetic", "examples": 100, "classes": 3, "shape": [4]},
        partition={"clients": 2}, models="mlp:4", local={"steps": 1, "batch_size": 8},
        run={"rounds": 1, "workers": 1, "precision": "tf32"},
    )  # fmt: skip
    fedfuse.run(made, tmp_path, observers=[Looks()])
    assert seen == ["high"]
    assert torch.get_float32_matmul_precision() == "highest"
