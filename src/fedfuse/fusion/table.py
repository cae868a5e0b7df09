"""The table: each teacher is run once on the pool rows that the drawn batches can contain."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor, nn

from fedfuse import tree
from fedfuse.compute.batches import Batch, images_of, length, lengths_of, rows_of
from fedfuse.fusion.spill import BOUND, SpillingRows
from fedfuse.fusion.target import TargetValue, checked_weight
from fedfuse.predict import BATCH, Pool, predict
from fedfuse.types import FedfuseError, NotFiniteError

T = TypeVar("T")

BLOCK = 16 * 2**20  # elements of a table that are read at once


@dataclass(frozen=True)
class TensorPool:
    """A pool that is one tensor, or a mapping of tensors."""

    x: Batch  # (N, ...)
    copies: dict[torch.device, Batch] = field(init=False, default_factory=dict, repr=False, compare=False)  # of x

    def __len__(self) -> int:
        return length(self.x)

    def batch(self, index: Tensor) -> Batch:
        return rows_of(self.x, index)

    def preparation(self, device: torch.device) -> Callable[[Batch], Batch]:
        return lambda rows: rows

    def lengths(self, rows: Tensor) -> Tensor | None:
        """Return the lengths of sequences (n,), so that similar ones are run together; None for other inputs."""
        return lengths_of(self.x, rows)


def augmented_views(
    pool: Pool, rows: Tensor, change: Callable[[Tensor, torch.Generator], Tensor], count: int, rng: torch.Generator
) -> TensorPool:
    """Return `count` augmented copies of the pool's `rows` (n,), drawn once for teachers and students alike."""
    batches = [index for _ in range(count) for index in torch.split(rows, 512)]
    return TensorPool(torch.cat([change(images_of(pool.batch(index)), rng) for index in batches]))


def reachable(size: int, steps: int, batch_size: int, rng: torch.Generator) -> Tensor:
    """Return the row numbers (n,) that `steps` batches can contain: the first of a permutation of the pool."""
    return torch.randperm(size, generator=rng)[: min(size, steps * batch_size)]


def logits_of(
    net: nn.Module, pool: Pool, rows: Tensor, name: str, batch_size: int = BATCH, lanes: int | None = None
) -> Tensor:
    """Return the logits (n, C) of a teacher on the pool's `rows` (n,), as `predict` does. Errors call it `name`."""
    logits = predict(net, pool, rows, batch_size, lanes)
    if logits.dim() != 2:
        raise FedfuseError(f"{name} gives outputs of shape {tuple(logits.shape)}: a teacher gives logits (B, C)")
    if not tree.all_finite(logits):
        raise NotFiniteError(f"{name} gives outputs that are not finite: leave it out, or train it with a lower lr")
    return logits


class Table:
    """All teachers' logits (M, N, C) in half precision; past `bound` bytes in a memory-mapped temporary file."""

    def __init__(self, rows: int, classes: int, bound: int = BOUND) -> None:
        self.rows, self.classes = rows, classes
        self._logits = SpillingRows(torch.float16, bound)

    @property
    def teachers(self) -> int:
        return len(self._logits)

    @property
    def spilled(self) -> bool:
        return self._logits.spilled

    def append(self, logits: Tensor) -> None:
        """Add one teacher's logits (N, C), clamped to the range of half precision."""
        if logits.shape != (self.rows, self.classes):
            raise FedfuseError(f"a table of {self.rows} rows, {self.classes} classes was given {tuple(logits.shape)}")
        limit = torch.finfo(torch.float16).max
        self._logits.append(logits.detach().clamp(-limit, limit)[None])

    def blocks(self) -> Iterator[Tensor]:
        """Yield the table in blocks of rows, in order: (M, n, C) float32 each."""
        step = max(1, BLOCK // max(1, self.teachers * self.classes))
        yield from (block.float() for block in torch.split(self._logits.whole(), step, dim=1))


class TableTarget:
    """A running target that needs all teachers at once; `labels` maps (M, n, C), (M,) -> (n, C)."""

    def __init__(self, labels: Callable[[Tensor, Tensor], Tensor], rows: int, classes: int, bound: int = BOUND) -> None:
        self._labels = labels
        self._table = Table(rows, classes, bound)
        self._weights: list[float] = []

    def add(self, logits: Tensor, weight: float = 1.0) -> None:
        self._weights.append(checked_weight(weight))
        self._table.append(logits)

    def each(self, function: Callable[[Tensor, Tensor], T]) -> list[T]:
        """Apply `function` to each block of rows: (M, n, C) and the teachers' weights (M,)."""
        if not math.fsum(self._weights):
            raise FedfuseError("no teacher has a weight above 0: add one that has")
        weights = torch.tensor(self._weights)
        return [function(block, weights) for block in self._table.blocks()]

    def value(self) -> TargetValue:
        return TargetValue.of(torch.cat(self.each(self._labels)))
