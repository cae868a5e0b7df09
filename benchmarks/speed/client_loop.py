"""A client's training loop against a bare PyTorch loop that does the same work, interleaved in one run.

    python benchmarks/speed/client_loop.py [--arch resnet8] [--batches 40] [--repeats 7]

Both train the same net on the same uint8 images with the same batches: read by index, normalise, channels_last,
forward, cross entropy, backward, SGD step. The figure is the ratio of images per second, ours to bare; the
median over the repeats is printed with its range. One compute thread.
"""

from __future__ import annotations

import argparse
import statistics
from time import perf_counter

import torch
import torch.nn.functional as F

import fedfuse
from fedfuse import models, rng
from fedfuse.context import Context
from fedfuse.local import Training
from fedfuse.runs.setup import load_federation, set_up
from fedfuse.types import Task

BATCH = 64


def experiment(arch: str, batches: int) -> fedfuse.Experiment:
    return fedfuse.Experiment(
        data={"source": "synthetic", "examples": BATCH * batches, "shape": (3, 32, 32), "validation": 0.0},
        partition={"clients": 1},
        models=arch,
        local={"epochs": 1, "batch_size": BATCH, "lr": 0.1},
    )


def ours(ctx: Context, task: Task) -> float:
    start = perf_counter()
    Training()(task, {}, ctx)
    return len(ctx.data.parts[0]) / (perf_counter() - start)


def bare(ctx: Context, arch: str) -> float:
    """What one would write by hand, tuned: channels_last, one indexed read a batch, foreach SGD."""
    x, y = ctx.data.train.x, ctx.data.train.y
    mean = ctx.data.train.mean.view(1, -1, 1, 1)
    std = ctx.data.train.std.view(1, -1, 1, 1)
    scale, shift = 1 / (255 * std), -mean / std
    net = models.build(arch, classes=ctx.data.train.classes, shape=ctx.data.train.shape)
    net = net.to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=True)
    order = torch.randperm(len(x), generator=rng.generator(0, "bare"))
    start = perf_counter()
    for i in range(0, len(order), BATCH):
        index = order[i : i + BATCH]
        images = x.index_select(0, index).to(torch.float32, memory_format=torch.channels_last).mul_(scale).add_(shift)
        loss = F.cross_entropy(net(images), y[index])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return len(order) / (perf_counter() - start)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--arch", default="resnet8")
    options.add_argument("--batches", type=int, default=40)
    options.add_argument("--repeats", type=int, default=7)
    given = options.parse_args()
    torch.set_num_threads(1)
    made = experiment(given.arch, given.batches)
    ctx = set_up(made, load_federation(made)).ctx.at(1)
    task = Task(0, 1, ctx.nets.initial(given.arch, ctx.rng("init")))
    ours(ctx, task), bare(ctx, given.arch)  # warm up
    pairs = [(ours(ctx, task), bare(ctx, given.arch)) for _ in range(given.repeats)]
    ratios = [a / b for a, b in pairs]
    print(f"{given.arch}, batch {BATCH}, {len(ctx.data.parts[0])} images of 3x32x32, 1 thread, {given.repeats} repeats")
    print(f"ours   {statistics.median(a for a, _ in pairs):8.0f} images/s")
    print(f"bare   {statistics.median(b for _, b in pairs):8.0f} images/s")
    print(f"ratio  {statistics.median(ratios):8.3f}   range {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    main()
