"""What is recorded about a round: scores of models, and the facts that the fusion adds to them.

Records store them as JSON, and reports read them by these names. All fields of `Facts` are optional: an algorithm fills
in what it measures. Facts of one paper only are in `own`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator

# A float. In a record, NaN is written as null.
Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]


@dataclass(frozen=True)
class Score:
    """The score of a net on labeled data."""

    accuracy: float
    loss: Number  # mean cross entropy


@dataclass(frozen=True)
class ConfidenceBins:
    """Predictions in `evaluate.BINS` equal bins of confidence, the largest probability.

    Per bin, `right` and `wrong` count predictions, and `total` is the sum of their confidences.
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
        """The number of predictions in each bin."""
        return [right + wrong for right, wrong in zip(self.right, self.wrong, strict=True)]

    @property
    def calibration_error(self) -> float:
        """The expected calibration error: the mean over predictions of |accuracy - confidence| of their bin."""
        gaps = [abs(right - total) for right, total in zip(self.right, self.total, strict=True)]
        return sum(gaps) / max(1, sum(self.count))


@dataclass(frozen=True)
class Quality:
    """The quality of a model or an ensemble on the probe; `validation` is its accuracy on validation data."""

    accuracy: float | None = None
    nll: float | None = None  # mean negative log likelihood
    ece: float | None = None  # expected calibration error
    confidence: ConfidenceBins | None = None
    validation: float | None = None


@dataclass(frozen=True)
class EnsembleQuality(Quality):
    """The quality of the ensemble, and how much its teachers differ."""

    disagreement: float | None = None  # mean over pairs of teachers and rows
    entropy: float | None = None  # mean over teachers, in nats


@dataclass(frozen=True)
class Spread:
    """The mean, lowest and highest accuracy of several models."""

    mean: float
    worst: float
    best: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        return Spread(math.fsum(values) / len(values), min(values), max(values))


@dataclass(frozen=True)
class ClientQuality(Spread):
    """Accuracies of the clients' models, or of a posterior's samples, on the probe, each model by itself.

    `confidence` counts the predictions of all of them.
    """

    confidence: ConfidenceBins | None = None


@dataclass(frozen=True)
class FirstAndLast:
    """The first and the last loss of a training."""

    first: Number
    last: Number


@dataclass(frozen=True)
class Student:
    """One distillation, with the quality before (of the clients' average, if there is one) and after it."""

    steps: int
    loss: FirstAndLast
    reason: str = ""  # why it ended
    average: Quality | None = None
    student: Quality | None = None
    diverged: bool = False  # the student is the start or the previous model


def divergence(students: Mapping[str, Student]) -> str | None:
    """Return a warning that names the students whose distillation diverged; None if there is none."""
    diverged = [f"{arch}: {student.reason}" for arch, student in students.items() if student.diverged]
    return f"distillation diverged: {'; '.join(diverged)}" if diverged else None


@dataclass(frozen=True)
class Discrepancy:
    """What the papers' bounds on the ensemble's error say of one client (FedDF's Theorem 5.1, Fed-ET's Theorem 1).

    Distances are from 0, where a classifier cannot tell the two data sets apart, to 2, where it always can.
    """

    pool: float | None = None  # distance of its data to the pool
    others: float | None = None  # distance of its data to that of all other clients
    own_error: float | None = None  # the share of its own training data that its model gets wrong


@dataclass(frozen=True)
class Facts:
    """The facts of one round."""

    teachers: int | None = None  # the number of models that taught
    clients: ClientQuality | None = None
    samples: ClientQuality | None = None  # of the models that were drawn from a posterior
    ensemble: EnsembleQuality | None = None
    agreement: Mapping[str, float] = field(default_factory=dict)  # client -> share of rows with the ensemble's class
    discrepancy: Mapping[str, Discrepancy] = field(default_factory=dict)  # by client, with run.discrepancy
    students: Mapping[str, Student] = field(default_factory=dict)  # by architecture
    dropped: Mapping[str, str] = field(default_factory=dict)  # client -> why its accepted update was left out
    silent: Sequence[str] = ()  # teachers other than clients that were left out, and why
    warning: str | None = None
    own: Mapping[str, Any] = field(default_factory=dict)  # facts of one algorithm only, JSON-serialisable
