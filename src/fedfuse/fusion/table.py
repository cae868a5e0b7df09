"""The table: every teacher is run once over the pool rows that the drawn batches can touch."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from fedfuse.fusion.target import Dissent, accepted, entropy
from fedfuse.predict import BATCH, Pool, predict
from fedfuse.types import FedfuseError

T = TypeVar("T")

BOUND = 256 * 2**20  # bytes of a table in memory; past them it goes to a temporary file
BLOCK = 16 * 2**20  # numbers of a table that are looked at at once


@dataclass(frozen=True)
class TensorPool:
    """A pool that is one tensor."""

    x: Tensor  # (N, ...)

    def __len__(self) -> int:
        return len(self.x)

    def batch(self, index: Tensor) -> Tensor:
        return self.x[index]


def views(
    pool: Pool, rows: Tensor, change: Callable[[Tensor, torch.Generator], Tensor], count: int, rng: torch.Generator
) -> TensorPool:
    """`count` augmented copies of the pool's `rows` (n,), drawn once, so that teachers and students see the same."""
    batches = [index for _ in range(count) for index in torch.split(rows, 512)]
    return TensorPool(torch.cat([change(pool.batch(index), rng) for index in batches]))


class NotFiniteError(FedfuseError):
    """A teacher's outputs hold infinities or NaN."""


def reachable(size: int, steps: int, batch_size: int, rng: torch.Generator) -> Tensor:
    """The row numbers (n,) that `steps` batches can touch: the first of a permutation of the pool."""
    return torch.randperm(size, generator=rng)[: min(size, steps * batch_size)]


def outputs(
    net: nn.Module, pool: Pool, rows: Tensor, name: str, batch_size: int = BATCH, lanes: int | None = None
) -> Tensor:
    """The logits (n, C) of the teacher called `name` on the pool's `rows` (n,), as `predict` computes them."""
    logits = predict(net, pool, rows, batch_size, lanes)
    if logits.dim() != 2:
        raise FedfuseError(f"{name} gives outputs of shape {tuple(logits.shape)}: a teacher gives logits (B, C)")
    if not bool(torch.isfinite(logits).all()):
        raise NotFiniteError(f"{name} gives outputs that are not finite: leave it out, or train it with a lower rate")
    return logits


class Table:
    """All teachers' logits (M, N, C) in half precision; past `bound` bytes in a memory-mapped temporary file."""

    def __init__(self, rows: int, classes: int, bound: int = BOUND) -> None:
        self.rows, self.classes, self.bound = rows, classes, bound
        self.teachers = 0
        self._kept: list[Tensor] = []
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  nameless, it goes when the table does
        self.spilled = False

    def append(self, logits: Tensor) -> None:
        """One more teacher's logits (N, C). What half precision cannot hold becomes its largest number."""
        if logits.shape != (self.rows, self.classes):
            raise FedfuseError(f"a table of {self.rows} rows, {self.classes} classes was given {tuple(logits.shape)}")
        limit = torch.finfo(torch.float16).max
        self._kept.append(logits.detach().to("cpu").clamp(-limit, limit).to(torch.float16))
        self.teachers += 1
        if self.spilled or self.teachers * self.rows * self.classes * 2 > self.bound:
            self._spill()

    def _spill(self) -> None:
        for half in self._kept:
            self._file.write(half.contiguous().numpy().tobytes())
        self._kept.clear()
        self.spilled = True

    def blocks(self) -> Iterator[Tensor]:
        """The table in blocks of rows, in order: (M, n, C) float32 each."""
        step = max(1, BLOCK // max(1, self.teachers * self.classes))
        if not self.spilled:
            whole = torch.stack(self._kept)
            yield from (block.float() for block in torch.split(whole, step, dim=1))
            return
        self._file.flush()
        shape = (self.teachers, self.rows, self.classes)
        mapped = np.memmap(self._file, dtype=np.float16, mode="r", shape=shape)
        for start in range(0, self.rows, step):
            yield torch.from_numpy(mapped[:, start : start + step].astype(np.float32))


class Tabled:
    """The accumulator of a target that needs all teachers at once; `target` maps (M, n, C), (M,) -> (n, C)."""

    @property
    def dissent(self) -> Dissent | None:
        return None

    def __init__(self, target: Callable[[Tensor, Tensor], Tensor], rows: int, classes: int, bound: int = BOUND) -> None:
        self._target = target
        self._table = Table(rows, classes, bound)
        self._weights: list[float] = []

    def add(self, logits: Tensor, weight: float = 1.0) -> None:
        self._weights.append(accepted(weight))
        self._table.append(logits)

    def each(self, function: Callable[[Tensor, Tensor], T]) -> list[T]:
        """What `function` makes of each block of rows: (M, n, C) and the teachers' weights (M,)."""
        if not math.fsum(self._weights):
            raise FedfuseError("no teacher with a weight above 0 has taught: there is no target")
        weights = torch.tensor(self._weights)
        return [function(block, weights) for block in self._table.blocks()]

    def value(self) -> Tensor:
        return torch.cat(self.each(self._target))

    def floor(self) -> Tensor:
        return entropy(self.value())
