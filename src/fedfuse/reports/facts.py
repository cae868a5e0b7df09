"""Numbers that a round's facts hold, wherever its algorithm has them; None where it has not."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from fedfuse.records.record import RoundRecord


def at(facts: Mapping[str, Any], *path: str) -> Any:
    """The value at a path of keys, or None."""
    value: Any = facts
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def mean_client(record: RoundRecord) -> float | None:
    return _number(at(record.facts, "clients", "mean"))


def ensemble(record: RoundRecord) -> float | None:
    return _number(at(record.facts, "ensemble", "accuracy"))


def average(record: RoundRecord) -> float | None:
    return _over_students(record, "average")


def student(record: RoundRecord) -> float | None:
    return _over_students(record, "student")


def disagreement(record: RoundRecord) -> float | None:
    inside = (at(record.facts, place, "disagreement") for place in ("ensemble", "public"))
    return next((_number(value) for value in inside if value is not None), None)


def confidence(record: RoundRecord, who: str) -> Mapping[str, list[float]] | None:
    """Right and wrong answers by confidence: of the clients, the ensemble, the average or the student."""
    if who in ("clients", "ensemble"):
        found = at(record.facts, who, "confidence")
        return found if isinstance(found, Mapping) else None
    each = [at(learnt, who, "confidence") for learnt in _students(record)]
    known = [c for c in each if isinstance(c, Mapping)]
    return summed(known) if known else None


def summed(each: list[Mapping[str, list[float]]]) -> Mapping[str, list[float]]:
    return {key: [sum(values) for values in zip(*(c[key] for c in each), strict=True)] for key in each[0]}


def _over_students(record: RoundRecord, which: str) -> float | None:
    """The mean over architectures."""
    values = [_number(at(learnt, which, "accuracy")) for learnt in _students(record)]
    known = [v for v in values if v is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def _students(record: RoundRecord) -> list[Mapping[str, Any]]:
    found = record.facts.get("students")
    return [s for s in found.values() if isinstance(s, Mapping)] if isinstance(found, Mapping) else []


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
