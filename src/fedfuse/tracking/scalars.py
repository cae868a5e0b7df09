"""A round's record as named numbers, and an experiment as named settings, for all trackers."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from fedfuse.dotted import flatten
from fedfuse.files import slug
from fedfuse.records.record import RoundRecord

Parameters = Mapping[str, str | int | float | bool]


def scalars(record: RoundRecord) -> dict[str, float]:
    """`test/accuracy`, `models/<architecture>/loss`, `seconds/local`, ..., and the algorithm's own facts.

    Lists and values that are not finite numbers are left out.
    """
    facts = asdict(record.facts)
    own_facts = facts.pop("own")
    numbers = {
        "test": {"accuracy": record.test_accuracy, "loss": record.test_loss},
        "validation": {"accuracy": record.validation_accuracy},
        "models": {arch: asdict(score) for arch, score in record.models.items()},
        "updates": {"accepted": len(record.cohort) - len(record.rejected), "rejected": len(record.rejected)},
        "params": {"up": record.params_up, "down": record.params_down},
        "bytes": {"up": record.bytes_up, "down": record.bytes_down},
        "seconds": record.seconds,
        "memory": record.memory,
    }
    clients = {client: asdict(each) for client, each in record.clients.items()}
    parts = (facts, own_facts, {"updates": clients}, numbers)
    return {name: value for part in parts for name, value in _finite_numbers(part)}


def parameters(settings: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """An experiment's settings by dotted key."""
    return {
        key: value if isinstance(value, str | int | float | bool) else json.dumps(value)
        for key, value in flatten(settings, name=tag).items()
    }


def _finite_numbers(value: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        if value and all(str(key).isdigit() for key in value):
            yield from _means(value, prefix)
        else:
            for key, inner in value.items():
                yield from _finite_numbers(inner, f"{prefix}/{tag(key)}" if prefix else tag(key))
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        yield prefix, float(value)


def _means(by_client: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    """Means over clients. A thousand curves with gaps where a client was not selected would be unreadable."""
    by_name: dict[str, list[float]] = defaultdict(list)
    for value in by_client.values():
        for name, number in _finite_numbers(value, prefix):
            by_name[name].append(number)
    yield from ((f"{name}/mean", statistics.fmean(numbers)) for name, numbers in by_name.items())


def tag(name: str) -> str:
    """A name in characters that all trackers accept: MLflow refuses the plus of `resnet8+head128`."""
    return slug(name, "_:") or "-"
