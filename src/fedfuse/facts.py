"""What is on record of a round: scores of models, and the facts that a fusion adds to them.

A record holds them as JSON, and the report reads them by these names. All fields of `Facts` may be missing: an
algorithm fills in what it measures. What belongs to one paper only is in `own`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator

# A float whose NaN a record writes as null.
Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]


@dataclass(frozen=True)
class Score:
    """Of a net on labeled data."""

    accuracy: float
    loss: Number  # mean cross entropy


@dataclass(frozen=True)
class ConfidenceBins:
    """Answers by the largest probability, in equal bins: how many were right, how many wrong, the sum of confidences.

    Each has `evaluate.BINS` numbers.
    """

    right: Sequence[int]
    wrong: Sequence[int]
    total: Sequence[float]

    def __add__(self, other: ConfidenceBins) -> ConfidenceBins:
        return ConfidenceBins(
            [a + b for a, b in zip(self.right, other.right, strict=True)],
            [a + b for a, b in zip(self.wrong, other.wrong, strict=True)],
            [a + b for a, b in zip(self.total, other.total, strict=True)],
        )

    @property
    def count(self) -> list[int]:
        """How many answers are in each bin."""
        return [right + wrong for right, wrong in zip(self.right, self.wrong, strict=True)]

    @property
    def calibration_error(self) -> float:
        """The expected calibration error: the mean over answers of |accuracy - confidence|, bin by bin."""
        gaps = [abs(right - total) for right, total in zip(self.right, self.total, strict=True)]
        return sum(gaps) / max(1, sum(self.count))


@dataclass(frozen=True)
class Quality:
    """How good a model or an ensemble is on the probe; `validation` is its accuracy on validation data."""

    accuracy: float | None = None
    nll: float | None = None  # mean negative log likelihood
    ece: float | None = None  # expected calibration error
    confidence: ConfidenceBins | None = None
    validation: float | None = None


@dataclass(frozen=True)
class EnsembleQuality(Quality):
    """The same of the ensemble, and how its teachers differ: over pairs and rows, and in the mean entropy (nats)."""

    disagreement: float | None = None
    entropy: float | None = None


@dataclass(frozen=True)
class Spread:
    """Accuracies of several models."""

    mean: float
    worst: float
    best: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        return Spread(math.fsum(values) / len(values), min(values), max(values))


@dataclass(frozen=True)
class ClientQuality(Spread):
    """The clients' models on the probe; `confidence` is that of all of them together."""

    confidence: ConfidenceBins | None = None


@dataclass(frozen=True)
class FirstAndLast:
    """Of the losses of a training."""

    first: Number
    last: Number


@dataclass(frozen=True)
class Student:
    """One distillation: before (the average of the clients' models, where there is one) and after."""

    steps: int
    loss: FirstAndLast
    reason: str = ""  # why it ended
    average: Quality | None = None
    student: Quality | None = None


@dataclass(frozen=True)
class Facts:
    """The facts of one round."""

    teachers: int | None = None  # models that taught
    clients: ClientQuality | None = None
    ensemble: EnsembleQuality | None = None
    agreement: Mapping[str, float] = field(default_factory=dict)  # client -> share of the ensemble's answers
    students: Mapping[str, Student] = field(default_factory=dict)  # by architecture
    dropped: Mapping[str, str] = field(default_factory=dict)  # client -> why its accepted update was left out
    silent: Sequence[str] = ()  # teachers other than clients that were left out, and why
    warning: str | None = None
    own: Mapping[str, Any] = field(default_factory=dict)  # what one algorithm alone records, JSON-able
