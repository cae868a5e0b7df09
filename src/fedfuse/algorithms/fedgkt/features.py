"""What FedGKT's clients send about their examples, stored for the server to train on: large features go to a file."""

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

    They are stored in single precision, as they were sent: unlike a table's logits, a net trains on them for many
    epochs. Past `bound` bytes they are in a file.
    """

    def __init__(self, bound: int = BOUND) -> None:
        self._rows = SpillingRows(torch.float32, bound)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def spilled(self) -> bool:
        return self._rows.spilled

    def append(self, features: Tensor) -> Tensor:
        """Copy one client's features (n, ...). Return their row numbers (n,)."""
        return self._rows.append(features)

    def batch(self, index: Tensor) -> Tensor:
        """Return the features (B, ...) at `index` (B,); maps are channels_last, like the images of `Examples`."""
        rows = self._rows.whole().index_select(0, index)
        return rows.contiguous(memory_format=torch.channels_last) if rows.dim() == 4 else rows


@dataclass
class Received:
    """What a round's clients sent, copied as it arrives. Large features go to a file; the rest is small."""

    arch: str  # the architecture whose extractors are averaged: others have other initial weights
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
        """Return rows of the features (N,), the clients' logits (N, C) and labels (N,), ordered by client number."""
        rows, logits, labels = (
            torch.cat([of[client] for client in sorted(self.rows)]) for of in (self.rows, self._logits, self._labels)
        )
        return rows, logits, labels
