"""Losses: what a student is told apart from. Each turns soft labels into those whose cross entropy is the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fedfuse.fusion.labelling import SoftLabels


class Loss(Protocol):
    def learnt(self, labels: SoftLabels) -> SoftLabels:
        """Labels whose cross entropy with the student, less their floor, is the loss. They need not sum to 1."""


@dataclass(frozen=True)
class SoftCrossEntropy:
    """KL(labels || student)."""

    def learnt(self, labels: SoftLabels) -> SoftLabels:
        return labels
