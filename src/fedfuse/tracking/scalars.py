"""A round's record as named numbers, and an experiment as named settings: what every tracker can draw."""

from __future__ import annotations

import json
import math
import re
import statistics
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedfuse.records.directory import EXPERIMENT
from fedfuse.records.record import RoundRecord

Parameters = Mapping[str, str | int | float | bool]


def scalars(record: RoundRecord) -> dict[str, float]:
    """`test/accuracy`, `models/<architecture>/loss`, `seconds/local`, ... The algorithm's own facts stand beside them.

    What is not a finite number has no place on a curve and is left out, as are lists.
    """
    own = {
        "test": {"accuracy": record.test_accuracy, "loss": record.test_loss},
        "validation": {"accuracy": record.validation_accuracy},
        "models": record.models,
        "updates": {"accepted": len(record.cohort) - len(record.rejected), "rejected": len(record.rejected)},
        "params": {"up": record.params_up, "down": record.params_down},
        "bytes": {"up": record.bytes_up, "down": record.bytes_down},
        "seconds": record.seconds,
        "memory": record.memory,
    }
    return {**dict(_flat(record.facts)), **dict(_flat(record.clients, "updates")), **dict(_flat(own))}


def parameters(path: Path) -> dict[str, str | int | float | bool]:
    """The experiment of a run directory by dotted key, with its provenance."""
    sections = tomllib.loads((path / EXPERIMENT).read_text(encoding="utf-8"))
    return dict(_settings(sections))


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        if value and all(str(key).isdigit() for key in value):
            yield from _means(value, prefix)
        else:
            for key, inner in value.items():
                yield from _flat(inner, f"{prefix}/{tag(key)}" if prefix else tag(key))
    elif isinstance(value, int | float) and math.isfinite(value):
        yield prefix, float(value)


def _means(by_client: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    """Means over clients: a curve for each of a thousand of them, with gaps where it was not asked, shows nothing."""
    gathered: dict[str, list[float]] = defaultdict(list)
    for value in by_client.values():
        for name, number in _flat(value, prefix):
            gathered[name].append(number)
    yield from ((f"{name}/mean", statistics.fmean(numbers)) for name, numbers in gathered.items())


def _settings(value: Any, prefix: str = "") -> Iterator[tuple[str, str | int | float | bool]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _settings(inner, f"{prefix}.{tag(key)}" if prefix else tag(key))
    else:
        yield prefix, value if isinstance(value, str | int | float | bool) else json.dumps(value)


def tag(name: str) -> str:
    """A name in characters that all trackers take: of `resnet8+head128` MLflow would refuse the plus."""
    return re.sub(r"[^A-Za-z0-9_.:-]+", "-", name).strip("-.") or "-"
