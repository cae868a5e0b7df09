"""What FedGKT's clients send of their own examples, kept for the server to train on: large features go to a file."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedfuse import tree
from fedfuse.algorithms.fedgkt.client import EXAMPLES, EXTRACTOR
from fedfuse.fusion.spill import BOUND, SpillingRows
from fedfuse.types import Tensors, Update


class Features:
    """Features (N, ...) that arrive client by client. `predict` takes them as a pool.

    In single precision, as they were sent: unlike a table's logits they are what a net trains on, for many epochs.
    Past `bound` bytes they lie in a file, whatever their width.
    """

    def __init__(self, bound: int = BOUND) -> None:
        self._rows = SpillingRows(torch.float32, bound)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def spilled(self) -> bool:
        return self._rows.spilled

    def append(self, features: Tensor) -> Tensor:
        """Copy one client's features (n, ...). Returns the row numbers (n,) by which they are read."""
        return self._rows.append(features)

    def batch(self, index: Tensor) -> Tensor:
        """The features (B, ...) at `index` (B,); maps in channels_last, as `Examples` gives images."""
        rows = self._rows.whole().index_select(0, index)
        return rows.contiguous(memory_format=torch.channels_last) if rows.dim() == 4 else rows


@dataclass
class Received:
    """What a round's clients sent, copied as it comes. Features may be large and go to a file, the rest is small."""

    arch: str  # the architecture whose extractors are averaged: those of others began elsewhere
    features: Features = field(default_factory=Features)
    rows: dict[int, Tensor] = field(default_factory=dict)  # (n_k,) of the features, by client
    extractor: tree.RunningMean = field(default_factory=tree.RunningMean)
    extractors: dict[int, Tensors] = field(default_factory=dict)
    _logits: dict[int, Tensor] = field(default_factory=dict)
    _labels: dict[int, Tensor] = field(default_factory=dict)

    def add(self, update: Update, arch: str) -> None:
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
