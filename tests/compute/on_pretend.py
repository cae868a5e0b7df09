"""Run by `test_devices.py` in a process of its own: every algorithm on the pretend device, against the CPU."""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

import fedfuse
from fedfuse.algorithm import Algorithm
from fedfuse.algorithms import ALGORITHMS
from fedfuse.compute import devices
from fedfuse.compute.feed import Feed
from fedfuse.context import Context, Nets
from fedfuse.data.examples import Examples
from fedfuse.engines import InProcess
from fedfuse.fusion import (
    SGD,
    SWA,
    AdamCosine,
    ConsensusWithDiversity,
    DirichletMixture,
    MeanLogits,
    MeanLosses,
    MeanProbs,
    MedianLogits,
    VarianceWeighted,
)
from fedfuse.fusion.table import TensorPool
from fedfuse.round import run_round
from fedfuse.runs.display import Silent
from fedfuse.testing import answers, bits, pretend, small_context
from fedfuse.types import FedfuseError, ServerState, Snapshot
from fedfuse.vet import Vetting
from tests.doubles import brief

DEVICE = torch.device(pretend.DEVICE)


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
    # A few steps: each takes a hundred times as long on a device that is written in Python.
    local = ctx.local.model_copy(update={"epochs": None, "steps": 3})
    ctx = replace(ctx, local=local, nets=Nets(ctx.nets.classes, ctx.nets.shape, device=device))
    algorithm.check(ctx)
    server, engine = ServerState(0, ctx.initial()), InProcess()
    for number in range(1, ctx.rounds + 1):
        server, record = run_round(algorithm, server, engine, [0, 1, 2, 3], Vetting(), ctx.at(number))
        assert not record.rejected, record.rejected
        assert record.note is None, record.note
    return server


def algorithm_case(name: str, *archs: str, **settings: object) -> Callable[[], None]:
    """The first of these architectures that the algorithm takes: FedMA takes no batch norm."""

    def case() -> None:
        for arch in archs:
            try:
                here = after(name, arch, torch.device("cpu"), **settings)
            except FedfuseError:
                continue
            return close(after(name, arch, DEVICE, **settings).models, here.models)
        raise AssertionError(f"{name} takes none of {archs}")

    return case


@contextmanager
def room(share: float) -> Iterator[None]:
    """Let data take this many bytes of the device."""
    before = devices.UNKNOWN_ROOM
    devices.UNKNOWN_ROOM = int(share)
    try:
        yield
    finally:
        devices.UNKNOWN_ROOM = before


def on_device(ctx: Context, precision: torch.dtype | None = None, **local: object) -> Context:
    nets = Nets(ctx.nets.classes, ctx.nets.shape, device=DEVICE, precision=precision)
    return replace(ctx, local=ctx.local.model_copy(update=local), nets=nets)


def training_case(
    per_step: int, *, name: str = "fedprox", fits: float = 2**20, precision: torch.dtype | None = None, **local: object
) -> Callable[[], None]:
    """Count what each further step of a client's training sends to the device; nothing is read from it."""

    def case() -> None:
        counts = []
        with room(fits):
            for epochs in (1, 3):
                algorithm = brief(name)
                whole = images(algorithm) if "augment" in local else small_context(algorithm)
                ctx = on_device(whole, precision, epochs=epochs, **local)
                server = ServerState(0, ctx.initial())
                pretend.transfers.clear()
                update = algorithm.local(algorithm.brief(server, 3, ctx), {}, ctx)
                counts.append((update.metrics["steps"], pretend.transfers["to"], pretend.transfers["from"]))
        steps, sent, read = (counts[1][i] - counts[0][i] for i in range(3))
        assert (sent, read) == (per_step * steps, 0), f"{steps} more steps: {sent} more sent, {read} more read"

    return case


def images(algorithm: Algorithm) -> Context:
    """As `small_context`, with images of bytes."""
    ctx = small_context(algorithm)
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (300, 1, 8, 8), dtype=torch.uint8, generator=draw)
    train = Examples(pixels, ctx.data.train.y, 3, torch.full((1,), 0.5), torch.full((1,), 0.3))
    data = replace(ctx.data, train=train, test=train, validation=train, pool=train)
    return replace(ctx, data=data, nets=Nets(3, (1, 8, 8)))


def nothing_is_sent_twice() -> None:
    """The training data goes to the device once for all clients and rounds, as bytes."""
    algorithm = brief("fedavg")
    ctx = on_device(images(algorithm))
    server = ServerState(0, ctx.initial())
    ctx.nets.scratch(ctx.archs[0])
    sent = []
    for client in (3, 3, 2):
        pretend.transfers.clear()
        update = algorithm.local(algorithm.brief(server, client, ctx), {}, ctx)
        sent.append(pretend.transfers["to"] - update.metrics["steps"])
    assert sent[0] == sent[1] + 1 == sent[2] + 1, sent
    (copy,) = ctx.data.train.copies.values()
    assert isinstance(copy, torch.Tensor)
    assert copy.dtype == torch.uint8


def what_fits_changes_no_bit() -> None:
    """All of the data on the device, only the client's rows, or batch by batch: the same bits."""
    made = []
    for share in (2**20, 12_000, 0):  # 300 and 105 images of 64 bytes, with their labels
        algorithm = brief("feddf")
        with room(share):
            ctx = on_device(images(algorithm), augment="crop+flip")
            server = ServerState(0, ctx.initial())
            updates = answers(algorithm, server, ctx)
            made.append(algorithm.fuse(server, updates, ctx)[0].models)
            assert bool(ctx.data.train.copies) == (share == 2**20)
    for other in made[1:]:
        for arch, model in made[0].items():
            assert bits(model) == bits(other[arch])


def texts_without_a_wait() -> None:
    """Texts are cut to the longest of a batch by lengths on the CPU, whether they are on the device or are sent."""
    draw = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 9, (50,), generator=draw)
    mask = (torch.arange(12) < lengths[:, None]).long()
    texts = {"input_ids": torch.randint(9, (50, 12), generator=draw), "attention_mask": mask}
    rows, positions = torch.randperm(50, generator=draw)[:20], torch.split(torch.arange(20), 8)
    seen = {}
    for share in (2**20, 0):
        with room(share):
            feed = Feed(TensorPool(texts), rows, DEVICE, torch.arange(20.0))
            pretend.transfers.clear()
            seen[share] = [({n: t.raw for n, t in x.items()}, y.raw) for x, y in feed(positions)]  # type: ignore[union-attr, attr-defined]
            assert (pretend.transfers["to"], pretend.transfers["from"]) == (3 if share else 9, 0)
    plain = list(Feed(TensorPool(texts), rows, torch.device("cpu"), torch.arange(20.0))(positions))
    for batches in seen.values():
        for (x, y), (expected, labels) in zip(batches, plain, strict=True):
            assert all(torch.equal(x[name], expected[name]) for name in texts)
            assert x["input_ids"].shape[1] < 12
            assert torch.equal(y, labels)


def distillation_case(per_step: int, share: float) -> Callable[[], None]:
    """Count what each further step of a distillation sends; nothing is read."""

    def case() -> None:
        counts = []
        for steps in (10, 30):
            distiller = AdamCosine(steps=steps, batch_size=32, clip=None)
            with room(share):
                pretend.transfers.clear()
                fedfuse.fuse([net(0)], net(1), X, distiller=distiller, device=DEVICE)
            counts.append((pretend.transfers["to"], pretend.transfers["from"]))
        assert (counts[1][0] - counts[0][0], counts[1][1] - counts[0][1]) == (20 * per_step, 0), counts

    return case


def generators_are_restored() -> None:
    """Local work and distillation seed the device's generator, and leave it as it was."""
    algorithm = brief("feddf")
    ctx = on_device(small_context(algorithm))
    server, state = ServerState(0, ctx.initial()), pretend.generator.get_state()
    pretend.seeds.clear()
    updates = answers(algorithm, server, ctx)
    assert len(pretend.seeds) == 4
    algorithm.fuse(server, updates, ctx)
    assert len(pretend.seeds) > 4
    assert torch.equal(pretend.generator.get_state(), state)
    pretend.seeds.clear()
    ctx.nets.initial("mlp:8", ctx.rng("init", "mlp:8"))
    assert not pretend.seeds, "initial weights are drawn on the CPU"


def float16() -> None:
    """Half precision with scaled losses on the device and on the CPU: about the same models, all float32."""
    made = []
    for device in (torch.device("cpu"), DEVICE):
        algorithm = brief("feddf")
        ctx = small_context(algorithm)
        ctx = replace(ctx, nets=Nets(ctx.nets.classes, ctx.nets.shape, device=device, precision=torch.float16))
        server = ServerState(0, ctx.initial())
        made.append(algorithm.fuse(server, answers(algorithm, server, ctx), ctx)[0].models["mlp:8"])
    for name, tensor in made[0].params.items():
        assert tensor.dtype == torch.float32
        assert torch.allclose(tensor, made[1].params[name], atol=2e-2), name


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


def generated_pool() -> None:
    """A pool that a generator draws anew in each round, and a shared head."""
    experiment = fedfuse.Experiment(
        data={
            "source": "synthetic", "examples": 120, "classes": 3, "shape": [1, 8, 8],
            "pool": {"kind": "generator", "generator": "tests.doubles:generator", "size": 40, "fresh": True},
        },
        partition={"clients": 2}, models={"clients": "mlp:8", "server": "mlp:16"},
        local={"steps": 2, "batch_size": 8, "augment": "crop+flip"},
        algorithm={"name": "fed-et", "steps": 3, "batch_size": 16}, run={"rounds": 2, "workers": 1},
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        made = [
            fedfuse.run(experiment.with_settings({"run.device": where}), Path(folder) / where.partition(":")[0]).models
            for where in ("cpu", pretend.DEVICE)
        ]
    close(made[1], made[0])


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
        title = _Title()
        straight = fedfuse.run(experiment.with_settings({"run.device": "auto"}), f"{folder}/straight", display=title)
        assert title.text.endswith("· on pretend"), title.text
        resumed = Path(folder) / "resumed"
        with suppress(_Stopped):
            fedfuse.run(experiment, resumed, observers=[_Stop()])
        again = fedfuse.run(experiment, resumed, resume=True)
        for name, tensor in again.models["mlp:8"].params.items():
            assert torch.equal(tensor, straight.models["mlp:8"].params[name]), f"resumed, {name} differs"
        assert not torch.are_deterministic_algorithms_enabled()
        here = fedfuse.run(experiment.with_settings({"run.device": "cpu"}), Path(folder) / "cpu")
        close(again.models, here.models)
        (file,) = (resumed / "models").iterdir()
        fedfuse.load_model(file)
        assert 'device = "pretend"' in (resumed / "experiment.toml").read_text()


class _Title(Silent):
    text = ""

    def begin(self, title: str, rounds: int, history: object) -> None:
        self.text = title


class _Stopped(Exception):
    pass


class _Stop:
    def begin(self, run: object, history: object) -> None: ...

    def round(self, record: object) -> None:
        assert torch.are_deterministic_algorithms_enabled()
        raise _Stopped

    def end(self, history: object) -> None: ...


CASES: dict[str, Callable[[], None]] = {
    **{name: algorithm_case(name, "mlp:8:bn", "mlp:8") for name in ALGORITHMS},
    "fedavg, recalibrated": algorithm_case("fedavg", "mlp:8:bn", buffers="recalibrate"),
    "feddf, drop worst": algorithm_case("feddf", "mlp:8", drop_worst=True),
    "fedbe, dirichlet": algorithm_case("fedbe", "mlp:8", posterior=DirichletMixture()),
    "fuse, adam": fuse_case(distiller=AdamCosine(steps=10, batch_size=32)),
    "fuse, sgd": fuse_case(distiller=SGD(steps=10, batch_size=32)),
    "fuse, swa": fuse_case(distiller=SWA(epochs=2, cycle=2, swa_start=1, batch_size=32)),
    **{
        f"fuse, {type(target).__name__}": fuse_case(target=target, distiller=SGD(steps=5, batch_size=32))
        for target in (MeanLogits(), MeanProbs(), MeanLosses(), MedianLogits(), VarianceWeighted())
    },
    "fuse, diversity": fuse_case(
        target=VarianceWeighted(), loss=ConsensusWithDiversity(), distiller=SGD(steps=5, batch_size=32)
    ),
    "fed-et, small and large with a shared head": algorithm_case("fed-et", "mlp:8", head=4),
    **{
        f"transfers of training, {what}": case
        for what, case in {
            "resident: the positions": training_case(1),
            "only the client's rows: the positions": training_case(1, fits=8_000),
            "augmented: positions, crops, flips": training_case(3, augment="crop+flip"),
            "scaffold": training_case(1, name="scaffold"),
            "moon": training_case(1, name="moon"),
            "float16": training_case(1, precision=torch.float16),
            "bfloat16": training_case(1, precision=torch.bfloat16),
            "too large: batch and labels": training_case(2, fits=0),
        }.items()
    },
    "transfers of distillation, resident: the positions": distillation_case(1, 2**20),
    "transfers of distillation, too large: batch and labels": distillation_case(2, 0),
    "the data is sent once": nothing_is_sent_twice,
    "what fits changes no bit": what_fits_changes_no_bit,
    "texts": texts_without_a_wait,
    "generators": generators_are_restored,
    "float16": float16,
    "a generated pool": generated_pool,
    "a whole run": whole_run,
}


def main() -> None:
    torch.set_num_threads(1)
    results = {}
    wanted = sys.argv[1:]
    for name, case in CASES.items():
        if wanted and not any(word in name for word in wanted):
            continue
        try:
            case()
            results[name] = ""
        except Exception:
            results[name] = traceback.format_exc()
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
