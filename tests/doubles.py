"""Test doubles: nets small enough for paper, a federation in memory, scripted engines and clients that fail.

What a worker process or the command line needs is named from here as `tests.doubles:name`.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from fedfuse.algorithm import Algorithm
from fedfuse.algorithms import ALGORITHMS, fedavg
from fedfuse.context import Context, Nets
from fedfuse.data.examples import Examples
from fedfuse.data.federation import Federation
from fedfuse.engines.engine import everyone
from fedfuse.facts import Facts
from fedfuse.fusion import Aggregate, Aggregated
from fedfuse.local import Training
from fedfuse.local_settings import LocalSettings
from fedfuse.types import Extras, Failure, FedfuseError, Groups, ServerState, Snapshot, Task, TensorSpec, Update

# Nets: `package.module:factory` architectures.

LINEAR, NORMED, DROPPING = "tests.doubles:linear", "tests.doubles:normed", "tests.doubles:dropping"


def linear(classes: int, shape: tuple[int, ...]) -> nn.Module:
    """logits = W x + b, from zeros: a step of its training can be done by hand."""
    net = nn.Linear(shape[0], classes)
    nn.init.zeros_(net.weight)
    nn.init.zeros_(net.bias)
    return net


def normed(classes: int, shape: tuple[int, ...]) -> nn.Module:
    """One batch norm, so two float buffers and a counter."""
    return nn.Sequential(nn.Linear(shape[0], 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, classes))


def dropping(classes: int, shape: tuple[int, ...]) -> nn.Module:
    """Dropout draws from torch's global generator: the layer by which engines could come to differ."""
    return nn.Sequential(nn.Linear(shape[0], 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, classes))


class Pixels(nn.Module):
    """A generator: latents of one image's size, as pixels."""

    latent = 64

    def forward(self, z: Tensor) -> Tensor:
        return z.sigmoid().view(-1, 1, 8, 8)


def generator() -> nn.Module:
    return Pixels()


# A federation in memory.


def blobs(rows: int, seed: int, classes: int = 3, features: int = 4) -> Examples:
    """Noisy clusters, one per class."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(rows) % classes
    x = 2 * torch.eye(classes, features)[y] + torch.randn(rows, features, generator=draw)
    return Examples(x, y, classes, torch.zeros(features), torch.ones(features))


def federation(clients: int = 4, rows: int = 120) -> Federation:
    """Clients of unequal size: client k has about k + 1 shares. The server has a pool and validation data."""
    ends = (torch.arange(clients + 1).double().square() / clients**2 * rows).long().tolist()
    parts = tuple(torch.arange(a, b) for a, b in pairwise(ends))
    return Federation(blobs(rows, 1), parts, blobs(30, 2), blobs(60, 3), blobs(256, 4), ("a", "b", "c"))


def context(archs: tuple[str, ...] = ("mlp:8",) * 4, *, rounds: int = 3, seed: int = 0, **local: object) -> Context:
    """Round 1 of a run over `federation`."""
    settings = LocalSettings(**{"epochs": 1, "batch_size": 16, **local})  # type: ignore[arg-type]
    data = federation(len(archs))
    return Context(seed, rounds, settings, data, archs, Nets(data.train.classes, data.train.shape), round=1)


def initial(ctx: Context) -> ServerState:
    return ServerState(0, ctx.initial())


def snapshot(*values: float, arch: str = "one", dtype: torch.dtype = torch.float32, **buffers: Tensor) -> Snapshot:
    """A model with a single parameter w."""
    return Snapshot(arch, {"w": torch.tensor(values, dtype=dtype)}, buffers)


def update(client: int, examples: int, model: Snapshot | None) -> Update:
    return Update(client, examples, model)


def aggregated(aggregate: Aggregate, server: ServerState, updates: Iterable[Update], ctx: Context) -> Aggregated:
    """The value of an aggregate after these updates."""
    running = aggregate.start(server, ctx)
    for each in updates:
        running.add(each)
    return running.value()


def trained(ctx: Context, server: ServerState, algorithm: Algorithm, clients: Iterable[int]) -> list[Update]:
    """What these clients answer."""
    return [algorithm.local(algorithm.brief(server, client, ctx), {}, ctx) for client in clients]


# Every algorithm by its name.

# A paper's defaults are made for hours of work: what an algorithm has of these is cut to a fraction of a second.
BRIEF: Mapping[str, object] = {
    "steps": 8, "epochs": 2, "batch_size": 32, "cycle": 2, "swa_start": 1, "samples": 2, "every": 4, "patience": 8,
    "probe": 20, "augment": "none",
}  # fmt: skip


def brief_settings(name: str) -> dict[str, object]:
    parameters = inspect.signature(ALGORITHMS[name]).parameters
    return {key: value for key, value in BRIEF.items() if key in parameters}


def brief(name: str, **settings: object) -> Algorithm:
    return ALGORITHMS[name](**brief_settings(name), **settings)


# Engines and clients.


@dataclass
class Scripted:
    """An engine that gives the answers it was told to, whatever it is asked."""

    answers: Iterable[Update | Failure]
    asked: list[Task] = field(default_factory=list)
    settled: tuple[int, ...] | None = None

    def run(
        self, algorithm: Algorithm, tasks: Iterable[Task], ctx: Context, server: ServerState | None = None
    ) -> Iterator[Update | Failure]:
        self.asked.extend(tasks)
        yield from self.answers

    def present(self, ctx: Context, claimed: Mapping[int, int]) -> tuple[Context, Sequence[int]]:
        return everyone(ctx)

    def settle(self, accepted: Collection[int]) -> None:
        self.settled = tuple(accepted)

    def memory(self) -> Mapping[int, Groups]:
        return {}

    def restore(self, memory: Mapping[int, Groups]) -> None:
        pass

    def peak_memory(self) -> int:
        return 0

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Failing:
    """Trains as told, but for some clients something else happens first."""

    fates: Mapping[int, Callable[[Task], Update | None]]
    train: Training = field(default_factory=Training)

    def __call__(self, task: Task, memory: Groups, ctx: Context) -> Update:
        fate = self.fates.get(task.client)
        answer = fate(task) if fate else None
        return self.train(task, memory, ctx) if answer is None else answer


def raises(task: Task) -> None:
    raise ValueError(f"round {task.round} was too much")


def runs_out_of_memory(task: Task) -> None:
    raise MemoryError


def exits(task: Task) -> None:
    os._exit(7)


def is_killed(task: Task) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sends_no_number(task: Task) -> Update:
    assert task.model is not None
    broken = {name: torch.full_like(t, torch.nan) for name, t in task.model.params.items()}
    return Update(task.client, 5, replace(task.model, params=broken))


def failing(fates: Mapping[int, Callable[[Task], Update | None]]) -> Algorithm:
    return replace(fedavg(), name="failing", local=Failing(fates))


def three_raise() -> Algorithm:
    """Clients 0, 1 and 2 fail in ways that an engine in the same process survives."""
    return failing({0: raises, 1: runs_out_of_memory, 2: sends_no_number})


def five_fail() -> Algorithm:
    """As `three_raise`, and the processes of clients 3 and 4 die."""
    return failing({0: raises, 1: runs_out_of_memory, 2: sends_no_number, 3: exits, 4: is_killed})


def _refuses(server: ServerState, updates: Iterable[Update], ctx: Context) -> tuple[ServerState, Facts]:
    raise FedfuseError("these cannot be fused")


def never_fuses() -> Algorithm:
    """An algorithm whose first round ends the run."""
    return replace(fedavg(), name="never-fuses", fuse=_refuses)


@dataclass(frozen=True)
class Remembering:
    """A client that counts its own rounds, in the memory that the engine keeps for it, and reports the count."""

    train: Training = field(default_factory=Training)

    def __call__(self, task: Task, memory: Groups, ctx: Context) -> Update:
        seen = memory["own"]["rounds"] + 1 if memory else torch.tensor(1)
        result = self.train(task, memory, ctx)
        assert result.model is not None
        # What it remembers moves the model, so that a memory lost would be seen in the bits.
        moved = {name: t + 0.01 * seen for name, t in result.model.params.items()}
        memory_after = {"own": {"rounds": seen}}
        return replace(
            result, model=replace(result.model, params=moved), memory=memory_after, extra={"count": {"n": seen.clone()}}
        )


def a_count(server: ServerState, client: int, ctx: Context) -> Extras:
    return {"count": {"n": TensorSpec((), torch.int64)}}


def remembering() -> Algorithm:
    return replace(fedavg(), name="remembering", local=Remembering(), expect=a_count)


@dataclass(frozen=True)
class Hoarding:
    """A client that keeps 20 kB: the checkpoint grows with every client that was ever asked."""

    train: Training = field(default_factory=Training)

    def __call__(self, task: Task, memory: Groups, ctx: Context) -> Update:
        return replace(
            self.train(task, memory, ctx), memory={"own": {"hoard": torch.full((5000,), float(task.client))}}
        )


def hoarding() -> Algorithm:
    return replace(fedavg(), name="hoarding", local=Hoarding())


@dataclass(frozen=True)
class Lingering:
    """Says where it runs, then works for a minute in small pieces, as training does."""

    train: Training = field(default_factory=Training)

    def __call__(self, task: Task, memory: Groups, ctx: Context) -> Update:
        Path(os.environ["FEDFUSE_TEST_PIDS"], str(os.getpid())).touch()
        until = time.monotonic() + 60
        while time.monotonic() < until:
            torch.ones(64, 64) @ torch.ones(64, 64)
            time.sleep(0.001)
        return self.train(task, memory, ctx)


def lingering() -> Algorithm:
    return replace(fedavg(), name="lingering", local=Lingering())


@dataclass(frozen=True)
class Waiting:
    """Says that it has begun, then waits for leave to go on: holds a run open for as long as a test needs."""

    train: Training = field(default_factory=Training)

    def __call__(self, task: Task, memory: Groups, ctx: Context) -> Update:
        gate = Path(os.environ["FEDFUSE_TEST_GATE"])
        (gate / "begun").touch()
        while not (gate / "leave").exists():
            time.sleep(0.01)
        return self.train(task, memory, ctx)


def waiting() -> Algorithm:
    return replace(fedavg(), name="waiting", local=Waiting())


def talkative() -> Algorithm:
    """Clients that print: their words must not get between an engine's messages."""

    def say(task: Task) -> None:
        print('{"answer": null}')
        sys.stdout.flush()
        os.write(1, b"not json\n")

    return failing(dict.fromkeys(range(10), say))


def not_an_algorithm() -> str:
    return "fedavg"


def own_data() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """A data source that is not the same tomorrow: the environment says which."""
    made = blobs(90, int(os.environ.get("FEDFUSE_TEST_DATA_SEED", "0")))
    return (made.x[:60].numpy(), made.y[:60].numpy()), (made.x[60:].numpy(), made.y[60:].numpy())
