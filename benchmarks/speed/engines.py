"""Engines against each other: one process, threads in one process, worker processes. Interleaved in one run.

    python benchmarks/speed/engines.py [--arch resnet8] [--clients 8] [--examples 640] [--repeats 3]

Every engine does the same clients' work of one round; workers are started before the clock. The figure is the
speed relative to one process. Threads are measured here only to justify that fedfuse does not use them: each
thread has nets of its own, as a fair engine of threads would.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import local
from time import perf_counter

import torch

import fedfuse
from fedfuse.context import Context, Nets
from fedfuse.engines import InProcess, Workers
from fedfuse.runs.setup import load_federation, set_up
from fedfuse.types import Failure, Task


def experiment(arch: str, clients: int, examples: int) -> fedfuse.Experiment:
    shape = (1, 8, 8) if arch.startswith("mlp") else (3, 32, 32)
    return fedfuse.Experiment(
        data={"source": "synthetic", "examples": clients * examples, "shape": shape, "validation": 0.0},
        partition={"clients": clients},
        models=arch,
        local={"epochs": 1 if len(shape) == 3 and shape[0] == 3 else 20, "batch_size": 64, "lr": 0.1},
    )


def threads(made: fedfuse.Experiment, ctx: Context, tasks: list[Task], count: int) -> None:
    mine = local()
    algorithm = made.algorithm.build()

    def work(task: Task) -> None:
        if not hasattr(mine, "ctx"):
            mine.ctx = replace(ctx, nets=Nets(ctx.nets.classes, ctx.nets.shape))
        algorithm.local(task, {}, mine.ctx)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, tasks))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--arch", default="resnet8")
    options.add_argument("--clients", type=int, default=8)
    options.add_argument("--examples", type=int, default=640)
    options.add_argument("--repeats", type=int, default=3)
    given = options.parse_args()
    torch.set_num_threads(1)
    made = experiment(given.arch, given.clients, given.examples)
    federation = load_federation(made)
    ctx = set_up(made, federation).ctx.at(1)
    algorithm = made.algorithm.build()
    model = ctx.nets.initial(given.arch, ctx.rng("init"))
    tasks = [Task(k, 1, model) for k in range(given.clients)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "experiment.toml"
        file.write_text(made.toml())
        federation.save(Path(folder) / "data")
        one, two = InProcess(), Workers(2, file, Path(folder) / "data")

        def run(engine: InProcess | Workers) -> None:
            answers = list(engine.run(algorithm, tasks, ctx))
            assert not any(isinstance(answer, Failure) for answer in answers), answers

        ways: dict[str, Callable[[], None]] = {
            "one process": lambda: run(one),
            "2 threads": lambda: threads(made, ctx, tasks, 2),
            "2 workers": lambda: run(two),
        }
        for way in ways.values():
            way()  # warm up: workers import, nets are built
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(given.repeats):
            for name, way in ways.items():
                start = perf_counter()
                way()
                seconds[name].append(perf_counter() - start)
        two.close()
    print(f"{given.arch}, {given.clients} clients of {given.examples} examples, {given.repeats} repeats")
    base = seconds["one process"]
    for name, times in seconds.items():
        gains = [b / t for b, t in zip(base, times, strict=True)]
        print(f"{name:12}  {statistics.median(times):7.2f} s   {statistics.median(gains):5.2f}x")


if __name__ == "__main__":
    main()
