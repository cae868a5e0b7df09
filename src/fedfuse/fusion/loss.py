"""Losses of a student. Each maps soft labels to the labels whose cross entropy with the student is the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fedfuse.fusion.labelling import SoftLabels


class Loss(Protocol):
    def __call__(self, labels: SoftLabels) -> SoftLabels:
        """Return labels whose cross entropy with the student, minus the floor, is the loss. They need not sum to 1."""


@dataclass(frozen=True)
class SoftCrossEntropy:
    """KL(labels || student)."""

    def __call__(self, labels: SoftLabels) -> SoftLabels:
        return labels
