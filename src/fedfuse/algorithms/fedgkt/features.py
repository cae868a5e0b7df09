"""What clients say of their own examples, kept for the server to train on: large features go to a file."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedfuse import tree
from fedfuse.algorithms.fedgkt.client import EXAMPLES, EXTRACTOR
from fedfuse.fusion.table import BOUND
from fedfuse.types import FedfuseError, Tensors, Update


class Features:
    """Features (N, ...) that arrive client by client; past `bound` bytes in a memory-mapped temporary file.

    In single precision, as they were sent: unlike a table's logits they are what a net trains on, for many epochs, and
    a file bounds the memory they take whatever their width. To `fedfuse.fusion.outputs` they are a pool.
    """

    def __init__(self, bound: int = BOUND) -> None:
        self.bound = bound
        self.spilled = False
        self._shape: tuple[int, ...] = ()
        self._kept: list[Tensor] = []
        self._rows = 0
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  nameless, it goes when this does

    def __len__(self) -> int:
        return self._rows

    def append(self, features: Tensor) -> Tensor:
        """Copy one client's features (n, ...). The row numbers (n,) by which they are read."""
        shape = tuple(features.shape[1:])
        if self._rows and shape != self._shape:
            raise FedfuseError(f"features of shape {self._shape} are followed by others of shape {shape}")
        self._shape = shape
        plain = features.detach().to("cpu", torch.float32, memory_format=torch.contiguous_format, copy=True)
        self._kept.append(plain)
        rows = torch.arange(self._rows, self._rows + len(features))
        self._rows += len(features)
        if self.spilled or sum(kept.numel() for kept in self._kept) * 4 > self.bound:
            self._spill()
        return rows

    def _spill(self) -> None:
        for kept in self._kept:
            self._file.write(kept.numpy().tobytes())
        self._kept.clear()
        self.spilled = True

    def batch(self, index: Tensor) -> Tensor:
        """The features (B, ...) at `index` (B,); maps in channels_last, as `Examples` gives images."""
        if self.spilled:
            self._file.flush()
            mapped = np.memmap(self._file, dtype=np.float32, mode="r", shape=(self._rows, *self._shape))
            rows = torch.from_numpy(mapped[index.numpy()])
        else:
            if len(self._kept) > 1:
                self._kept = [torch.cat(self._kept)]
            rows = self._kept[0].index_select(0, index)
        return rows.contiguous(memory_format=torch.channels_last) if rows.dim() == 4 else rows


@dataclass
class Heard:
    """What a round's clients sent, copied as it comes. Features may be large and go to a file, the rest is small."""

    arch: str  # the architecture whose extractors are averaged: those of others began elsewhere
    features: Features = field(default_factory=Features)
    rows: dict[int, Tensor] = field(default_factory=dict)  # (n_k,) of the features, by client
    extractor: tree.RunningMean = field(default_factory=tree.RunningMean)
    extractors: dict[int, Tensors] = field(default_factory=dict)
    _logits: dict[int, Tensor] = field(default_factory=dict)
    _labels: dict[int, Tensor] = field(default_factory=dict)

    def take(self, update: Update, arch: str) -> None:
        examples, client = update.extra[EXAMPLES], update.client
        self.rows[client] = self.features.append(examples["features"])
        self._logits[client], self._labels[client] = examples["logits"].clone(), examples["labels"].clone()
        self.extractors[client] = {name: tensor.clone() for name, tensor in update.extra[EXTRACTOR].items()}
        if arch == self.arch:
            self.extractor.add(self.extractors[client], update.num_examples)

    def ordered(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of the features (N,), the clients' logits (N, C) and labels (N,), by the clients' numbers."""
        rows, logits, labels = (
            torch.cat([of[client] for client in sorted(self.rows)]) for of in (self.rows, self._logits, self._labels)
        )
        return rows, logits, labels
