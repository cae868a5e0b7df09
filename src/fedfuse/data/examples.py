"""A data set as whole tensors, in RAM or memory-mapped, normalised batch by batch.

Images stay uint8 until a batch is read, so a data set takes a quarter of the memory that floats would, and a
batch is one indexed read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Examples:
    """N examples. `y` is all zeros for unlabeled data (a pool)."""

    x: Tensor  # (N, C, H, W) uint8 images, or (N, ...) float32
    y: Tensor  # (N,) int64
    classes: int
    mean: Tensor  # (C,) of x / 255 for images, of x for floats
    std: Tensor  # (C,)
    columns: Mapping[str, Tensor] = field(default_factory=dict)  # (N,) int64 each, for example users

    def __len__(self) -> int:
        return self.x.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example as a model sees it."""
        return tuple(self.x.shape[1:])

    def subset(self, index: Tensor) -> Examples:
        """The examples at `index` (n,): a copy of those rows, with the same statistics."""
        columns = {name: c[index] for name, c in self.columns.items()}
        return replace(self, x=self.x.index_select(0, index), y=self.y[index], columns=columns)

    def normalise(self, x: Tensor) -> Tensor:
        """(B, ...) as stored -> (B, ...) float32 with this data's statistics; images in channels_last."""
        shape = (1, -1) + (1,) * (x.dim() - 2)
        unit = 255.0 if x.dtype == torch.uint8 else 1.0
        scale = (1.0 / (unit * self.std)).view(shape)
        shift = (-self.mean / self.std).view(shape)
        if x.dim() == 4:
            return x.to(torch.float32, memory_format=torch.channels_last).mul_(scale).add_(shift)
        return x.to(torch.float32, copy=True).mul_(scale).add_(shift)

    def batch(self, index: Tensor) -> Tensor:
        """The normalised inputs (B, ...) at `index` (B,)."""
        # index_select copies whole rows; x[index] copies element by element and takes several times as long.
        return self.normalise(self.x.index_select(0, index))
