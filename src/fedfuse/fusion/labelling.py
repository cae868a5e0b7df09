"""A lecture: the teachers of one round speak on the pool, each once, and their soft labels remain."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfuse.fusion.table import outputs
from fedfuse.fusion.target import Accumulator, Dissent, Target
from fedfuse.predict import Pool
from fedfuse.types import FedfuseError


@dataclass(frozen=True)
class SoftLabels:
    """What a student is to say of the pool's `rows`."""

    rows: Tensor  # (n,) row numbers of the pool
    probs: Tensor  # (n, C)
    floor: Tensor  # (n,) subtracted from the cross entropy in what is reported
    temperature: float = 1.0
    dissent: Dissent | None = None  # where the target heeds it


class Lecture:
    """Runs teachers over the pool's `rows` (n,) and keeps only what the target needs of them."""

    def __init__(self, target: Target, pool: Pool, rows: Tensor) -> None:
        self.target, self.pool, self.rows = target, pool, rows
        self.teachers = 0
        self._first = ""
        self._running: Accumulator | None = None
        self._classes = 0

    def listen(self, net: nn.Module, name: str) -> Tensor:
        """The logits (n, C) of one teacher, checked to fit those before it, and not yet taken in."""
        logits = outputs(net, self.pool, self.rows, name)
        if self._running is not None and logits.shape[1] != self._classes:
            raise FedfuseError(
                f"{name} gives logits for {logits.shape[1]} classes, {self._first} for {self._classes}: "
                "all teachers must tell the same classes apart"
            )
        return logits

    def take(self, logits: Tensor, name: str, weight: float = 1.0) -> None:
        """Add a teacher's logits (n, C) to the target."""
        if self._running is None:
            self._first, self._classes = name, logits.shape[1]
            self._running = self.target.start(len(self.rows), self._classes)
        self._running.add(logits, weight)
        self.teachers += 1

    def labels(self) -> SoftLabels:
        if self._running is None:
            raise FedfuseError("there is no teacher: an ensemble needs at least one model")
        running = self._running
        labels = SoftLabels(self.rows, running.value(), running.floor(), self.target.temperature, running.dissent)
        if not bool(torch.isfinite(labels.probs).all()):
            raise FedfuseError("the ensemble's soft labels are not finite: look at the teachers' outputs")
        return labels
