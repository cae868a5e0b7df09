"""What a net says of many inputs: batch by batch, in eval mode, on all cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from itertools import chain
from queue import SimpleQueue
from time import perf_counter
from typing import Protocol

import torch
from torch import Tensor, nn

# Rows that a net reads at once when it only predicts. On 3x32x32, ResNet-8 took 1.4 to 1.9 times as long per image with
# 512, whose activations leave the cache. Smaller inputs would rather have more rows, but with them less is lost.
BATCH = 128
LANES = 8  # threads that run one net, at most: each holds a batch's activations
# Seconds for a batch. At 0.2 ms two lanes took 1.6 to 2.4 times as long as one: threads wait for Python's lock. From
# 6.5 ms on they were 1.3 to 2.0 times faster; in between nothing was measured.
WORTH_A_LANE = 2e-3


class Pool(Protocol):
    """Unlabeled inputs, read by row number: `fedfuse.data.Examples` is one."""

    def __len__(self) -> int: ...

    def batch(self, index: Tensor) -> Tensor:
        """Row numbers (B,) -> inputs (B, ...) as a net takes them."""


def predict(net: nn.Module, pool: Pool, rows: Tensor, batch_size: int = BATCH, lanes: int | None = None) -> Tensor:
    """The logits (n, C) of the net on the pool's `rows` (n,), in memory of the CPU. Its modes are restored.

    Batches are computed in `lanes` threads: by default as many as torch's own threads leave cores for, if it pays. The
    bits do not depend on their number, for a batch is computed whole in one lane. A lane has the net's modules to
    itself, so that a `forward` may keep things on `self`. Parameters and buffers are shared: in eval mode, a net
    must neither write to them nor draw random numbers. torch's own layers do neither.
    """
    batches = torch.split(rows, batch_size)
    with evaluating(net):
        start = perf_counter()
        first = _logits(net, pool, batches[0])
        if lanes is None:
            lanes = _lanes(net) if perf_counter() - start > WORTH_A_LANE else 1
        return torch.cat([first, *_in_lanes(net, pool, batches[1:], min(lanes, len(batches) - 1))])


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Eval mode for the whole net; afterwards each layer is in the mode it was in."""
    modes = [(module, module.training) for module in net.modules()]
    net.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@torch.no_grad()
def _logits(net: nn.Module, pool: Pool, index: Tensor) -> Tensor:
    logits: Tensor = net(pool.batch(index).to(_device(net)))
    return logits.to("cpu", torch.float32)


def _device(net: nn.Module) -> torch.device:
    first = next(net.parameters(), None)
    return torch.device("cpu") if first is None else first.device


def _lanes(net: nn.Module) -> int:
    """How many cores are left for batches of their own. Autocast would end at a thread's door: there it is one."""
    if _device(net).type != "cpu" or torch.is_autocast_enabled("cpu"):
        return 1
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, min(LANES, cores // torch.get_num_threads()))


def _in_lanes(net: nn.Module, pool: Pool, batches: Sequence[Tensor], lanes: int) -> Iterator[Tensor]:
    """The logits of every batch, in order."""
    nets = [net, *_twins(net, lanes - 1)]
    if len(nets) == 1:
        yield from (_logits(net, pool, index) for index in batches)
        return
    free: SimpleQueue[nn.Module] = SimpleQueue()
    for one in nets:
        free.put(one)

    def work(index: Tensor) -> Tensor:
        mine = free.get()
        try:
            return _logits(mine, pool, index)
        finally:
            free.put(mine)

    # Without an initializer a new thread's first layers run with OpenMP's number of threads, not with torch's.
    alike = (torch.get_num_threads(),)
    with ThreadPoolExecutor(len(nets), "fedfuse-lane", torch.set_num_threads, alike) as executor:
        yield from executor.map(work, batches)


def _twins(net: nn.Module, count: int) -> list[nn.Module]:
    """Copies of the modules over the same tensors; none of a net that cannot be copied."""
    tensors = {id(t): t for t in chain(net.parameters(), net.buffers())}
    try:
        return [deepcopy(net, dict(tensors)) for _ in range(count)]
    except Exception:  # what a user's module raises is its own choice, and one lane serves it as well
        return []
