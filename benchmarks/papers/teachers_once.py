"""Teachers once per round, against teachers at every step: time and memory of both ways, in one run.

    python benchmarks/papers/teachers_once.py [--clients 8 20] [--steps 500] [--pool 10000] [--students 1 3]

Once: every client model is run over the pool a single time, the students learn from the table (what fedfuse does).
Every step: all client models are run on the batch of every step, as FedDF's box reads and its released code does.
Both train the same students (ResNet-8, batch 128, Adam) from the same K ResNet-8 teachers on images of 3x8x8; several
students are FedDF's Algorithm 3, where every prototype is distilled from all clients. The ratio of the two times is
taken in CPU seconds of one thread, so that other work on the machine does not count. Peak memory is that of a process
that fuses a stream of clients and nothing else.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections.abc import Iterator
from time import process_time

import torch
from rich.console import Console
from rich.table import Table

import fedfuse
from fedfuse import tree
from fedfuse.context import Context
from fedfuse.fusion import AdamCosine, Distilled, MeanLogits
from fedfuse.types import ServerState, Snapshot, Update

ARCH, SHAPE, BATCH = "resnet8", (3, 8, 8), 128


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
    return made.context(made.federation()).at(1)


def teachers(clients: int, ctx: Context) -> Iterator[Update]:
    """Client models that are made as they are asked for: none is held."""
    for client in range(clients):
        yield Update(client, 100, ctx.nets.initial(ARCH, ctx.rng("teacher", client)))


def once(clients: int, students: int, steps: int, ctx: Context) -> float:
    fuse = Distilled(distiller=AdamCosine(steps=steps, batch_size=BATCH), probe=0)
    start = process_time()
    server = ServerState(0, {ARCH: ctx.nets.initial(ARCH, ctx.rng("init"))})
    fuse(server, teachers(clients, ctx), ctx)
    shared = process_time() - start
    if students > 1:  # the table is there: further students cost their own steps only
        shared += (students - 1) * student_seconds(steps, ctx)
    return shared


def student_seconds(steps: int, ctx: Context) -> float:
    """The time of one student's steps, measured: learning from a table that is there already."""
    labels = torch.full((len(pool_of(ctx)), 10), 0.1)
    return _learn(steps, ctx, lambda rows, x: labels[rows])


def every_step(models: list[Snapshot], students: int, steps: int, ctx: Context) -> float:
    """All teachers on every batch. They are held as live nets: reloading one net at every step would be slower."""
    nets = [ctx.nets.load(model, f"teacher {i}").eval() for i, model in enumerate(models)]
    target = MeanLogits()

    @torch.no_grad()
    def soft_labels(rows: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return target(torch.stack([net(x) for net in nets]))

    return sum(_learn(steps, ctx, soft_labels) for _ in range(students))


def _learn(steps, ctx, soft_labels) -> float:  # type: ignore[no-untyped-def]
    pool, net = pool_of(ctx), ctx.nets.scratch(ARCH, "student").train()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, foreach=True)
    order = torch.randint(len(pool), (steps, BATCH), generator=ctx.rng("batches"))
    start = process_time()
    for rows in order:
        x = pool.batch(rows)
        loss = torch.nn.functional.cross_entropy(net(x), soft_labels(rows, x))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()
    return process_time() - start


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
        once(clients, 1, 2, ctx)
    else:
        every_step([u.model for u in teachers(clients, ctx) if u.model is not None], 1, 2, ctx)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--clients", type=int, nargs="+", default=[8, 20])
    options.add_argument("--students", type=int, nargs="+", default=[1, 3])
    options.add_argument("--steps", type=int, default=500)
    options.add_argument("--pool", type=int, default=10_000)
    options.add_argument("--peak", choices=["once", "every step"], help=argparse.SUPPRESS)
    given = options.parse_args()
    torch.set_num_threads(1)
    if given.peak:
        print_peak(given.peak, given.clients[0], given.pool)
        return
    console = Console(width=110)
    table = Table(
        title=f"Distillation in one round: pool {given.pool:,}, {given.steps} steps of {BATCH}, {ARCH} {SHAPE}"
    )
    for column in ("clients", "students", "once, CPU s", "every step, CPU s", "ratio"):
        table.add_column(column, justify="right")
    for clients in given.clients:
        ctx = context(clients, given.pool)
        models = [u.model for u in teachers(clients, ctx) if u.model is not None]
        once(2, 1, 5, ctx), every_step(models[:2], 1, 5, ctx)  # warm up
        for students in given.students:
            fast, slow = once(clients, students, given.steps, ctx), every_step(models, students, given.steps, ctx)
            table.add_row(str(clients), str(students), f"{fast:.1f}", f"{slow:.1f}", f"{slow / fast:.2f}x")
    console.print(table)
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
