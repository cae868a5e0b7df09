"""A data set as whole tensors, in RAM or memory-mapped, normalised batch by batch.

Images stay uint8 until a batch is read, so a data set takes a quarter of the memory that floats would, and a
batch is one indexed read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedfuse.compute.batches import Batch, copy_rows, lengths_of, rows_of
from fedfuse.data.texts.store import Texts
from fedfuse.types import FedfuseError


@dataclass(frozen=True)
class Examples:
    """N examples. `y` is all zeros for unlabeled data (a pool)."""

    x: Batch  # (N, C, H, W) uint8 images, (N, ...) float32, or a mapping of tensors (N, ...), such as token ids
    y: Tensor  # (N,) int64
    classes: int
    mean: Tensor  # (C,) of x / 255 for images, of x for floats
    std: Tensor  # (C,)
    columns: Mapping[str, Tensor] = field(default_factory=dict)  # (N,) int64 each, for example users
    vocabulary: int = 0  # number of tokens, where x holds token ids
    texts: Texts | None = None  # texts that are not yet encoded: x["text"] (N,) holds their row numbers
    copies: dict[torch.device, Batch] = field(init=False, default_factory=dict, repr=False, compare=False)  # of x

    def __len__(self) -> int:
        return len(self.y)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example as a model sees it; of a mapping, that of its first tensor.

        Of texts (L, V): the longest length, and the vocabulary's size.
        """
        first = self.x if isinstance(self.x, Tensor) else next(iter(self.x.values()))
        return (*first.shape[1:], self.vocabulary) if self.vocabulary else tuple(first.shape[1:])

    @property
    def tensor(self) -> Tensor:
        """The inputs, where they must be one tensor: images or features."""
        if isinstance(self.x, Tensor):
            return self.x
        raise FedfuseError(f"this takes images or features, and the data has {', '.join(self.x)}: choose other data")

    def subset(self, index: Tensor) -> Examples:
        """The examples at `index` (n,): a copy of those rows, with the same statistics."""
        columns = {name: c[index] for name, c in self.columns.items()}
        return replace(self, x=copy_rows(self.x, index), y=self.y[index], columns=columns)

    def normalise(self, x: Tensor) -> Tensor:
        """(B, ...) as stored -> (B, ...) float32 with this data's statistics; images in channels_last."""
        shape = (1, -1) + (1,) * (x.dim() - 2)
        unit = 255.0 if x.dtype == torch.uint8 else 1.0
        scale = (1.0 / (unit * self.std)).view(shape)
        shift = (-self.mean / self.std).view(shape)
        if x.dim() == 4:
            return x.to(torch.float32, memory_format=torch.channels_last).mul_(scale).add_(shift)
        return x.to(torch.float32, copy=True).mul_(scale).add_(shift)

    def preparation(self, device: torch.device) -> Callable[[Batch], Batch]:
        """Return `normalise` for rows on this device, where the statistics are sent once."""
        if not isinstance(self.x, Tensor):
            return self._tokens
        there = replace(self, x=self.x[:0], mean=self.mean.to(device), std=self.std.to(device))

        def normalise(rows: Batch) -> Tensor:
            assert isinstance(rows, Tensor)
            return there.normalise(rows)

        return normalise

    def batch(self, index: Tensor) -> Batch:
        """The inputs (B, ...) at `index` (B,): normalised, or, of a mapping, without needless padding."""
        if not isinstance(self.x, Tensor):
            return self._tokens(rows_of(self.x, index))
        # index_select copies whole rows; x[index] copies element by element and takes several times as long.
        return self.normalise(self.x.index_select(0, index))

    def _tokens(self, rows: Batch) -> Batch:
        """Return the rows of a mapping as nets take them: token ids are stored in 4 bytes and masks in 1."""
        if not self.vocabulary or isinstance(rows, Tensor):
            return rows
        return {name: t.long() for name, t in rows.items()}

    def extremes(self) -> dict[str, tuple[int, int]]:
        """Return the rows of the least and the greatest value of each tensor of whole numbers in a mapping."""
        if isinstance(self.x, Tensor):
            return {}
        numbers = {name: t for name, t in self.x.items() if not t.is_floating_point() and t.numel()}
        return {name: (int(t.argmin()) // t[0].numel(), int(t.argmax()) // t[0].numel()) for name, t in numbers.items()}

    def lengths(self, rows: Tensor) -> Tensor | None:
        """Return the lengths of sequences (n,), so that similar ones are run together; None for other inputs."""
        return lengths_of(self.x, rows)
