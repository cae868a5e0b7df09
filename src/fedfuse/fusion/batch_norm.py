"""Recompute batch-norm statistics."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from fedfuse import rng
from fedfuse.compute.batches import Batch, forward
from fedfuse.compute.feed import Feed, Pool


def recompute_batch_norm(net: nn.Module, pool: Pool, rows: Tensor, batch_size: int, layers: torch.Generator) -> None:
    """Measure batch-norm statistics on the pool's `rows` (n,), in place, as the mean over equally weighted batches.

    Only whole batches count, unless there is none: a small last batch would weigh too much, and batch norm cannot
    take a batch of one. Layers that draw random numbers draw from `layers`.
    """
    whole = max(1, len(rows) // batch_size)
    device = next(net.parameters()).device
    fed = Feed(pool, rows, device)(torch.split(torch.arange(len(rows)), batch_size)[:whole])
    with torch.no_grad(), rng.ambient(layers, device):
        update_bn((batch for batch, _ in fed), _OneArgument(net))


class _OneArgument(nn.Module):
    """A net that takes its batch as one argument."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, batch: Batch) -> Tensor:
        return forward(self.net, batch)
