"""The numbers of a round that the report draws; None if the algorithm does not record them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Literal

from fedfuse.facts import ConfidenceBins, Quality
from fedfuse.records.record import RoundRecord

Who = Literal["clients", "samples", "average", "ensemble", "student"]


def mean_client(record: RoundRecord) -> float | None:
    return record.facts.clients.mean if record.facts.clients else None


def ensemble(record: RoundRecord) -> float | None:
    return record.facts.ensemble.accuracy if record.facts.ensemble else None


def average(record: RoundRecord) -> float | None:
    return _mean_accuracy(_qualities(record, "average"))


def student(record: RoundRecord) -> float | None:
    return _mean_accuracy(_qualities(record, "student"))


def disagreement(record: RoundRecord) -> float | None:
    return record.facts.ensemble.disagreement if record.facts.ensemble else None


def agreement(record: RoundRecord, client: int) -> float | None:
    """Return how often the client predicts the ensemble's class."""
    return record.facts.agreement.get(str(client))


def own_error(record: RoundRecord) -> float | None:
    """Return the mean error of the clients' models on their own training data."""
    return _mean([each.own_error for each in record.facts.discrepancy.values()])


def half_discrepancy(record: RoundRecord) -> float | None:
    """Return half the mean distance of a client's data to that of the others: a term of the papers' bounds."""
    mean = _mean([each.others for each in record.facts.discrepancy.values()])
    return None if mean is None else mean / 2


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return statistics.fmean(numbers) if numbers else None


def confidence(record: RoundRecord, who: Who) -> ConfidenceBins | None:
    """Return right and wrong answers by confidence; averages and students are summed over architectures."""
    if who == "clients":
        return record.facts.clients.confidence if record.facts.clients else None
    if who == "samples":
        return record.facts.samples.confidence if record.facts.samples else None
    if who == "ensemble":
        return record.facts.ensemble.confidence if record.facts.ensemble else None
    return total([quality.confidence for quality in _qualities(record, who) if quality and quality.confidence])


def total(bins: Sequence[ConfidenceBins]) -> ConfidenceBins | None:
    return reduce(add, bins) if bins else None


def _qualities(record: RoundRecord, which: Literal["average", "student"]) -> list[Quality | None]:
    """Return one entry per distilled architecture."""
    return [s.average if which == "average" else s.student for s in record.facts.students.values()]


def _mean_accuracy(qualities: Sequence[Quality | None]) -> float | None:
    """Return the mean over architectures, or None unless all have an accuracy."""
    accuracies = [q.accuracy for q in qualities if q is not None and q.accuracy is not None]
    return statistics.fmean(accuracies) if accuracies and len(accuracies) == len(qualities) else None
