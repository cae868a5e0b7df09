"""Compute a net's logits on many inputs: batch by batch, in eval mode, on all cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from itertools import chain
from queue import SimpleQueue
from time import perf_counter

import torch
from torch import Tensor, nn

from fedfuse.compute.batches import forward, to_device
from fedfuse.compute.feed import Feed
from fedfuse.compute.feed import Pool as Pool
from fedfuse.compute.threads import cores

# Rows of a batch when a net only predicts. On 3x32x32, ResNet-8 took 1.4 to 1.9 times as long per image with 512, whose
# activations exceed the cache. Smaller inputs would be faster with more rows, but they lose less.
BATCH = 128
LANES = 8  # the most threads that run one net: each holds the activations of a batch
# Seconds per batch above which several lanes are used. At 0.2 ms two lanes took 1.6 to 2.4 times as long as one:
# threads wait for Python's lock. From 6.5 ms on they were 1.3 to 2.0 times faster; in between nothing was measured.
WORTH_A_LANE = 2e-3


def predict(net: nn.Module, pool: Pool, rows: Tensor, batch_size: int = BATCH, lanes: int | None = None) -> Tensor:
    """Return the logits (n, C) of the net on the pool's `rows` (n,), on the CPU. The net's modes are restored.

    Batches are computed in `lanes` threads: by default one per core that torch's own threads leave free, or a single
    one for fast batches. The bits do not depend on their number, because each batch is computed whole in one lane.
    Each lane has its own copy of the modules, so a `forward` may store things on `self`. Parameters and buffers are
    shared: in eval mode, a net must neither write to them nor draw random numbers. torch's own layers do neither.
    """
    order = _order(pool, rows)
    sorted_rows = rows if order is None else rows[order]
    with evaluating(net):
        if (device := device_of(net)).type == "cpu":
            logits = _on_cpu(net, pool, torch.split(sorted_rows, batch_size), lanes)
        else:
            logits = _on_device(net, pool, sorted_rows, batch_size, device)
    return logits if order is None else torch.empty_like(logits).index_copy_(0, order, logits)


def _on_cpu(net: nn.Module, pool: Pool, batches: Sequence[Tensor], lanes: int | None) -> Tensor:
    start = perf_counter()
    first = _logits(net, pool, batches[0])
    if lanes is None:
        lanes = _lanes(net) if perf_counter() - start > WORTH_A_LANE else 1
    return torch.cat([first, *_in_lanes(net, pool, batches[1:], min(lanes, len(batches) - 1))])


@torch.no_grad()
def _on_device(net: nn.Module, pool: Pool, rows: Tensor, batch_size: int, device: torch.device) -> Tensor:
    fed = Feed(pool, rows, device)(torch.split(torch.arange(len(rows)), batch_size))
    return torch.cat([forward(net, x).to("cpu", torch.float32) for x, _ in fed])


def _order(pool: Pool, rows: Tensor) -> Tensor | None:
    """Return an order of the rows in which similar lengths are neighbours, for a pool of sequences; else None."""
    lengths = getattr(pool, "lengths", None)
    row_lengths: Tensor | None = None if lengths is None else lengths(rows)
    return None if row_lengths is None else row_lengths.argsort(stable=True)


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Put the whole net into eval mode, and restore the mode of each layer afterwards."""
    modes = [(module, module.training) for module in net.modules()]
    net.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@torch.no_grad()
def _logits(net: nn.Module, pool: Pool, index: Tensor) -> Tensor:
    return forward(net, to_device(pool.batch(index), "cpu")).to("cpu", torch.float32)


def device_of(net: nn.Module) -> torch.device:
    """Return the device of the net's parameters; the CPU if it has none."""
    first = next(net.parameters(), None)
    return torch.device("cpu") if first is None else first.device


def _lanes(net: nn.Module) -> int:
    """Return the number of lanes that the cores allow. Autocast is per thread, so use one lane under autocast."""
    if torch.is_autocast_enabled("cpu"):
        return 1
    return max(1, min(LANES, cores() // torch.get_num_threads()))


def _in_lanes(net: nn.Module, pool: Pool, batches: Sequence[Tensor], lanes: int) -> Iterator[Tensor]:
    """Yield the logits of every batch, in order."""
    nets = [net, *_copies(net, lanes - 1)]
    if len(nets) == 1:
        yield from (_logits(net, pool, index) for index in batches)
        return
    free: SimpleQueue[nn.Module] = SimpleQueue()
    for lane_net in nets:
        free.put(lane_net)

    def work(index: Tensor) -> Tensor:
        free_net = free.get()
        try:
            return _logits(free_net, pool, index)
        finally:
            free.put(free_net)

    # Without an initializer, a new thread's first layers run with OpenMP's number of threads, not torch's.
    arguments = (torch.get_num_threads(),)
    with ThreadPoolExecutor(len(nets), "fedfuse-lane", torch.set_num_threads, arguments) as executor:
        yield from executor.map(work, batches)


def _copies(net: nn.Module, count: int) -> list[nn.Module]:
    """Return copies of the modules that share the net's tensors; none if the net cannot be copied."""
    tensors = {id(t): t for t in chain(net.parameters(), net.buffers())}
    try:
        return [deepcopy(net, dict(tensors)) for _ in range(count)]
    except Exception:  # a user's module may raise anything; one lane works without copies
        return []
