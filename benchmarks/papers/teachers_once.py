"""Teachers once per round, against teachers at every step: time and memory of both ways, in one run.

    python benchmarks/papers/teachers_once.py [--clients 8 20] [--steps 500] [--pool 10000]

Once: every client model is run over the pool a single time, the students learn from the table (what fedfuse does).
Every step: all client models are run on the batch of every step, as FedDF's box reads and its released code does.
Both train the same students (batch 128, Adam) from the same K ResNet-8 teachers on images of 3x8x8: one ResNet-8; three
of them (FedDF's Algorithm 3 distils every prototype from all clients), one after the other; one small perceptron.

Torch computes with one thread. CPU seconds are what both ways cost, wherever it is computed; other work on the machine
disturbs them less than wall-clock, which means something on an idle machine only. Wall-clock has fedfuse's
table on all cores, against every step on one core and against every step with the teachers spread over all cores.
Beside each ratio stands its bound, from counting passes: a student's step is weighed against a teacher's forward pass
by measuring both. Peak memory is that of a process that fuses a stream of clients and nothing else.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter, process_time

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import fedfuse
from fedfuse import tree
from fedfuse.context import Context
from fedfuse.fusion import AdamCosine, Distilled, MeanLogits
from fedfuse.fusion.labelling import Labelling, SoftLabels
from fedfuse.fusion.table import reachable
from fedfuse.runs.setup import load_federation, set_up
from fedfuse.types import ServerState, Snapshot, Update

ARCH, SMALL, SHAPE, BATCH = "resnet8", "mlp:128", (3, 8, 8), 128
CORES = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Time:
    cpu: float
    wall: float

    @staticmethod
    def now() -> Time:
        return Time(process_time(), perf_counter())

    def since(self, start: Time) -> Time:
        return Time(self.cpu - start.cpu, self.wall - start.wall)


def context(clients: int, pool: int) -> Context:
    made = fedfuse.Experiment(
        data={
            "source": "synthetic",
            "examples": 4000,
            "shape": SHAPE,
            "validation": 0.0,
            "pool": {"kind": "noise", "size": pool},
        },
        partition={"clients": clients},
        models=ARCH,
        local={"epochs": 1},
    )
    return set_up(made, load_federation(made)).ctx.at(1)


def teachers(clients: int, ctx: Context) -> Iterator[Update]:
    """Client models that are made as they are asked for: none is held."""
    for client in range(clients):
        yield Update(client, 100, ctx.nets.initial(ARCH, ctx.rng("teacher", client)))


def once(clients: int, students: Sequence[str], steps: int, ctx: Context) -> list[Time]:
    """fedfuse's table and distiller: the time when each student is ready, the teachers' included."""
    distiller, pool, start = AdamCosine(steps=steps, batch_size=BATCH), pool_of(ctx), Time.now()
    labelling = Labelling(MeanLogits(), pool, reachable(len(pool), steps, BATCH, ctx.rng("pool")))
    for update in teachers(clients, ctx):
        assert update.model is not None
        name = f"client {update.client}"
        labelling.add(labelling.logits(ctx.nets.load(update.model, "teacher"), name), name)
    labels, ready = labelling.value(), []
    for arch in students:
        distiller(ctx.nets.scratch(arch, "student"), pool, labels, None, ctx.rng)
        ready.append(Time.now().since(start))
    return ready


def every_step(
    models: Sequence[Snapshot], students: Sequence[str], steps: int, ctx: Context, cores: int = 1
) -> list[Time]:
    """All teachers on every batch. They are held as live nets: reloading one net at every step would be slower."""
    nets = [ctx.nets.load(model, f"teacher {i}").eval() for i, model in enumerate(models)]
    ready, start = [], Time.now()
    with ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,)) as executor:
        spread = map if cores == 1 else executor.map

        def ask(x: Tensor) -> list[Tensor]:
            return list(spread(lambda net: _said(net, x), nets))

        for arch in students:
            _learn(ctx.nets.scratch(arch, "student"), steps, ctx, ask)
            ready.append(Time.now().since(start))
    return ready


@torch.no_grad()
def _said(net: nn.Module, x: Tensor) -> Tensor:
    said: Tensor = net(x)
    return said


def _learn(net: nn.Module, steps: int, ctx: Context, ask) -> None:  # type: ignore[no-untyped-def]
    """`ask` gives the teachers' logits on a batch."""
    pool, target = pool_of(ctx), MeanLogits()
    optimizer = torch.optim.Adam(net.train().parameters(), lr=1e-3, foreach=True)
    for rows in torch.randint(len(pool), (steps, BATCH), generator=ctx.rng("batches")):
        x = pool.batch(rows)
        loss = torch.nn.functional.cross_entropy(net(x), target(torch.stack(ask(x))))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()


def step_in_passes(arch: str, ctx: Context, count: int = 60) -> float:
    """What a student's step from a table costs, in forward passes of a teacher over the same batch."""
    net, pool = ctx.nets.scratch(ARCH, "teacher").eval(), pool_of(ctx)
    rows = torch.arange(BATCH)
    labels = SoftLabels(rows, torch.full((BATCH, 10), 0.1), torch.zeros(BATCH))
    student, distiller = ctx.nets.scratch(arch, "student"), AdamCosine(steps=count, batch_size=BATCH)
    distiller(student, pool, labels, None, ctx.rng)  # warm up
    start = process_time()
    distiller(student, pool, labels, None, ctx.rng)
    middle = process_time()
    for _ in range(count):
        _said(net, pool.batch(rows))
    return (middle - start) / (process_time() - middle)


def bound(clients: int, students: int, step: float, steps: int, pool: int, once_cores: int, step_cores: int) -> float:
    """How much faster once can be than every step, when only passes count; cores serve the teachers."""
    drawn = steps * BATCH
    own = students * step * drawn
    return (students * clients * drawn / step_cores + own) / (clients * min(pool, drawn) / once_cores + own)


def pool_of(ctx: Context):  # type: ignore[no-untyped-def]
    assert ctx.data.pool is not None
    return ctx.data.pool


def peak_memory(way: str, clients: int, pool: int) -> float:
    """Peak resident memory (MiB) of a process of its own that fuses `clients` clients in this way, in few steps."""
    command = [sys.executable, __file__, "--peak", way, "--clients", str(clients), "--pool", str(pool)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_peak(way: str, clients: int, pool: int) -> None:
    ctx = context(clients, pool)
    if way == "once":
        fuse = Distilled(distiller=AdamCosine(steps=10, batch_size=BATCH), probe=0)
        fuse(ServerState(0, {ARCH: ctx.nets.initial(ARCH, ctx.rng("init"))}), teachers(clients, ctx), ctx)
    else:
        every_step([u.model for u in teachers(clients, ctx) if u.model is not None], [ARCH], 2, ctx)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def times(numbers: Sequence[int], steps: int, pool: int, console: Console) -> list[Snapshot]:
    """Print the table of times; the teachers of the last line."""
    table = Table(title=f"One round: pool {pool:,}, {steps} steps of {BATCH}, {ARCH} {SHAPE}, {CORES} cores")
    ratio = "ratio\n(bound)"
    heads = ("clients", "students", "step, in\nteacher passes", "CPU s: once,\nevery step", ratio,
             "wall s: once,\nevery step", ratio, f"every step,\n{CORES} cores", ratio)  # fmt: skip
    for column in heads:
        table.add_column(column, justify="right")
    for clients in numbers:
        ctx = context(clients, pool)
        models = [u.model for u in teachers(clients, ctx) if u.model is not None]
        once(2, [ARCH, SMALL], 5, ctx), every_step(models[:2], [ARCH, SMALL], 5, ctx)  # warm up
        for students in ([ARCH] * 3, [SMALL]):
            step = step_in_passes(students[0], ctx)
            fast, slow = once(clients, students, steps, ctx), every_step(models, students, steps, ctx)
            spread = every_step(models, students[:1], steps, ctx, CORES)
            for count in sorted({1, len(students)}):
                a, b = fast[count - 1], slow[count - 1]
                used = ((1, 1), (CORES, 1), (CORES, CORES))
                bounds = [bound(clients, count, step, steps, pool, *cores) for cores in used]
                cells = [str(clients), f"{count} {students[0]}", f"{step:.1f}", f"{a.cpu:.1f}, {b.cpu:.1f}",
                         f"{b.cpu / a.cpu:.2f} ({bounds[0]:.2f})", f"{a.wall:.1f}, {b.wall:.1f}",
                         f"{b.wall / a.wall:.2f} ({bounds[1]:.2f})"]  # fmt: skip
                if count == 1:  # measured for one student only: it takes its time
                    cells += [f"{spread[0].wall:.1f}", f"{spread[0].wall / a.wall:.2f} ({bounds[2]:.2f})"]
                table.add_row(*cells)
    console.print(table)
    return models


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--clients", type=int, nargs="+", default=[8, 20])
    options.add_argument("--steps", type=int, default=500)
    options.add_argument("--pool", type=int, default=10_000)
    options.add_argument("--peak", choices=["once", "every step"], help=argparse.SUPPRESS)
    given = options.parse_args()
    torch.set_num_threads(1)
    if given.peak:
        print_peak(given.peak, given.clients[0], given.pool)
        return
    console = Console(width=140)
    models = times(given.clients, given.steps, given.pool, console)
    size = tree.nbytes(models[0].params) / 2**20
    memory = Table(title=f"Peak memory of the server's process, MiB (a client's model: {size:.1f})")
    for column in ("clients", "once", "every step"):
        memory.add_column(column, justify="right")
    for clients in (10, 200):
        memory.add_row(
            str(clients), *(f"{peak_memory(way, clients, given.pool):.0f}" for way in ("once", "every step"))
        )
    console.print(memory)


if __name__ == "__main__":
    main()
