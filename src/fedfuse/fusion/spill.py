"""Rows that a server needs all at once: in memory up to a bound, else in a memory-mapped temporary file."""

from __future__ import annotations

import tempfile
import weakref
from typing import IO

import numpy as np
import torch
from torch import Tensor

from fedfuse.types import FedfuseError

BOUND = 256 * 2**20  # bytes in memory


class SpillingRows:
    """Rows of one shape, stored as `dtype`; past `bound` bytes in an unnamed file, deleted with this object."""

    def __init__(self, dtype: torch.dtype, bound: int = BOUND) -> None:
        self._dtype, self._bound = dtype, bound
        self._shape: tuple[int, ...] = ()
        self._blocks: list[Tensor] = []
        self._count = 0
        self._file: IO[bytes] | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def spilled(self) -> bool:
        return self._file is not None

    def append(self, rows: Tensor) -> Tensor:
        """Copy rows (n, ...). Return their row numbers (n,)."""
        shape = tuple(rows.shape[1:])
        if self._count and shape != self._shape:
            raise FedfuseError(f"rows of shape {self._shape} are followed by others of shape {shape}: give one shape")
        self._shape = shape
        self._blocks.append(rows.detach().to("cpu", self._dtype, memory_format=torch.contiguous_format, copy=True))
        numbers = torch.arange(self._count, self._count + len(rows))
        self._count += len(rows)
        if self.spilled or sum(b.numel() for b in self._blocks) * self._dtype.itemsize > self._bound:
            self._spill()
        return numbers

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed with this object
            weakref.finalize(self, self._file.close)
        for block in self._blocks:
            self._file.write(block.numpy().tobytes())
        self._blocks.clear()

    def whole(self) -> Tensor:
        """Return all rows (n, ...). Those in a file are memory-mapped: only rows that are indexed are read."""
        if self._file is not None:
            self._file.flush()
            dtype = torch.empty(0, dtype=self._dtype).numpy().dtype
            return torch.from_numpy(np.memmap(self._file, dtype, mode="c", shape=(self._count, *self._shape)))
        if len(self._blocks) != 1:
            self._blocks = [torch.cat(self._blocks)] if self._blocks else [torch.empty(0, dtype=self._dtype)]
        return self._blocks[0]
