"""Run by `test_devices.py` in a process of its own: every algorithm on the pretend device, against the CPU."""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

import fedfuse
from fedfuse.algorithms import ALGORITHMS
from fedfuse.context import Nets
from fedfuse.engines import InProcess
from fedfuse.fusion import SGD, SWA, AdamCosine, MeanLogits, MeanLosses, MeanProbs, MedianLogits, VarianceWeighted
from fedfuse.round import run_round
from fedfuse.testing import pretend, small_context
from fedfuse.types import FedfuseError, ServerState, Snapshot
from fedfuse.vet import Vetting
from tests.doubles import brief

DEVICE = torch.device(pretend.DEVICE)
ARCHS = ("mlp:8", "mlp:8:bn")


def close(ours: Mapping[str, Snapshot], theirs: Mapping[str, Snapshot]) -> None:
    assert ours.keys() == theirs.keys()
    for arch, model in ours.items():
        for group, other in ((model.params, theirs[arch].params), (model.buffers, theirs[arch].buffers)):
            for name, tensor in group.items():
                assert tensor.device.type == "cpu", f"{arch}.{name} is on {tensor.device}"
                assert torch.allclose(tensor, other[name], rtol=1e-4, atol=1e-5), f"{arch}.{name} differs"


def after(name: str, arch: str, device: torch.device, **settings: object) -> ServerState:
    algorithm = brief(name, **settings)
    ctx = small_context(algorithm, (arch,), rounds=1 if name == "one-shot" else 2)
    ctx = replace(ctx, nets=Nets(ctx.nets.classes, ctx.nets.shape, device=device))
    algorithm.check(ctx)
    server, engine = ServerState(0, ctx.initial()), InProcess()
    for number in range(1, ctx.rounds + 1):
        server, record = run_round(algorithm, server, engine, [0, 1, 2, 3], Vetting(), ctx.at(number))
        assert not record.rejected, record.rejected
        assert record.note is None, record.note
    return server


def algorithm_case(name: str, arch: str, **settings: object) -> Callable[[], None]:
    def case() -> None:
        try:
            here = after(name, arch, torch.device("cpu"), **settings)
        except FedfuseError:
            return  # an algorithm that does not take this architecture, such as FedMA batch norm
        close(after(name, arch, DEVICE, **settings).models, here.models)

    return case


def training_transfers() -> None:
    """A step of local training sends its batch and labels, and nothing else either way."""
    counts = []
    for epochs in (1, 3):
        algorithm = brief("fedprox")
        ctx = small_context(algorithm)
        local = ctx.local.model_copy(update={"epochs": epochs})
        ctx = replace(ctx, local=local, nets=Nets(ctx.nets.classes, ctx.nets.shape, device=DEVICE))
        server = ServerState(0, ctx.initial())
        pretend.transfers.clear()
        update = algorithm.local(algorithm.brief(server, 3, ctx), {}, ctx)
        counts.append((update.metrics["steps"], pretend.transfers["to"], pretend.transfers["from"]))
    steps, sent, read = (counts[1][i] - counts[0][i] for i in range(3))
    assert (sent, read) == (2 * steps, 0), f"{steps} more steps are {sent} more transfers to the device, {read} from it"


def distillation_transfers() -> None:
    """A step of distillation sends its batch and soft labels, and reads nothing."""
    counts = []
    for steps in (10, 30):
        pretend.transfers.clear()
        fedfuse.fuse([net(0)], net(1), X, distiller=AdamCosine(steps=steps, batch_size=32, clip=None), device=DEVICE)
        counts.append((pretend.transfers["to"], pretend.transfers["from"]))
    assert (counts[1][0] - counts[0][0], counts[1][1] - counts[0][1]) == (40, 0), counts


def net(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


X = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))


def fuse_case(**settings: object) -> Callable[[], None]:
    def case() -> None:
        data = (X[:60], torch.arange(60) % 3)
        made = [
            fedfuse.fuse([net(0), net(1)], net(2), X, validation=data, device=where, **settings)  # type: ignore[arg-type]
            for where in ("cpu", DEVICE)
        ]
        close({"net": Snapshot.of("net", made[1].model)}, {"net": Snapshot.of("net", made[0].model)})

    return case


NOISE = {"kind": "noise", "size": 64}


def whole_run() -> None:
    """Records, checkpoints, resuming and the model file, with a pool of noise."""
    experiment = fedfuse.Experiment(
        data={
            "source": "synthetic",
            "examples": 300,
            "classes": 3,
            "shape": [4],
            "pool": NOISE,
        },
        partition={"clients": 3},
        models="mlp:8",
        local={"steps": 3, "batch_size": 8},
        algorithm={"name": "feddf", "steps": 4, "batch_size": 16},
        run={"rounds": 3, "workers": 1, "device": pretend.DEVICE},
    )
    with tempfile.TemporaryDirectory() as folder:
        straight = fedfuse.run(experiment, Path(folder) / "straight")
        resumed = Path(folder) / "resumed"
        with suppress(_Stopped):
            fedfuse.run(experiment, resumed, observers=[_Stop()])
        again = fedfuse.run(experiment, resumed, resume=True)
        for name, tensor in again.models["mlp:8"].params.items():
            assert torch.equal(tensor, straight.models["mlp:8"].params[name]), f"resumed, {name} differs"
        here = fedfuse.run(experiment.with_settings({"run.device": "cpu"}), Path(folder) / "cpu")
        close(again.models, here.models)
        (file,) = (resumed / "models").iterdir()
        fedfuse.load_model(file)
        assert 'device = "pretend"' in (resumed / "experiment.toml").read_text()


class _Stopped(Exception):
    pass


class _Stop:
    def begin(self, run: object, history: object) -> None: ...

    def round(self, record: object) -> None:
        raise _Stopped

    def end(self, history: object) -> None: ...


CASES: dict[str, Callable[[], None]] = {
    **{f"{name}, {arch}": algorithm_case(name, arch) for name in ALGORITHMS for arch in ARCHS},
    "fedavg, recalibrated": algorithm_case("fedavg", "mlp:8:bn", buffers="recalibrate"),
    "feddf, drop worst": algorithm_case("feddf", "mlp:8", drop_worst=True),
    "fedbe, dirichlet": algorithm_case("fedbe", "mlp:8", posterior="dirichlet"),
    "fuse, adam": fuse_case(distiller=AdamCosine(steps=10, batch_size=32)),
    "fuse, sgd": fuse_case(distiller=SGD(steps=10, batch_size=32)),
    "fuse, swa": fuse_case(distiller=SWA(epochs=2, cycle=2, swa_start=1, batch_size=32)),
    **{
        f"fuse, {type(target).__name__}": fuse_case(target=target, distiller=SGD(steps=5, batch_size=32))
        for target in (MeanLogits(), MeanProbs(), MeanLosses(), MedianLogits(), VarianceWeighted())
    },
    "transfers of training": training_transfers,
    "transfers of distillation": distillation_transfers,
    "a whole run": whole_run,
}


def main() -> None:
    torch.set_num_threads(1)
    results = {}
    for name, case in CASES.items():
        try:
            case()
            results[name] = ""
        except Exception:
            results[name] = traceback.format_exc()
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
