"""Labelling the pool: each teacher is run on it once, and the target turns their logits into soft labels."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from fedfuse import tree
from fedfuse.fusion.table import logits_of
from fedfuse.fusion.target import Diversity, RunningTarget, Target
from fedfuse.predict import Pool
from fedfuse.types import FedfuseError, NotFiniteError


@dataclass(frozen=True)
class SoftLabels:
    """The labels that a student learns on the pool's `rows`. After a loss has changed them, they need not sum to 1."""

    rows: Tensor  # (n,) row numbers of the pool
    probs: Tensor  # (n, C)
    floor: Tensor  # (n,) subtracted from the cross entropy in the reported loss
    temperature: float = 1.0
    diversity: Diversity | None = None  # where the target computes it


class Labelling:
    """The labelling of the pool's `rows` (n,) in one round. Of a teacher it keeps only what the target needs."""

    def __init__(self, target: Target, pool: Pool, rows: Tensor) -> None:
        self.target, self.pool, self.rows = target, pool, rows
        self.teachers = 0
        self._first = ""
        self._classes = 0
        self._running: RunningTarget | None = None

    def logits(self, net: nn.Module, name: str) -> Tensor:
        """Compute one teacher's logits (n, C) and check their number of classes. They are not added yet."""
        logits = logits_of(net, self.pool, self.rows, name)
        if self._running is not None and logits.shape[1] != self._classes:
            raise FedfuseError(
                f"{name} gives logits for {logits.shape[1]} classes, {self._first} for {self._classes}: "
                "all teachers must have the same classes"
            )
        return logits

    def add(self, logits: Tensor, name: str, weight: float = 1.0) -> None:
        """Add one teacher's logits (n, C) to the target."""
        if self._running is None:
            self._first, self._classes = name, logits.shape[1]
            self._running = self.target.start(len(self.rows), self._classes)
        self._running.add(logits, weight)
        self.teachers += 1

    def value(self) -> SoftLabels:
        if self._running is None:
            raise FedfuseError("there is no teacher: give the ensemble at least one model")
        probs, floor, diversity = self._running.value()
        if not tree.all_finite(probs):
            raise NotFiniteError("the ensemble's soft labels are not finite: check the teachers' outputs")
        return SoftLabels(self.rows, probs, floor, self.target.temperature, diversity)
