"""Runs that differ in nothing but their seed are one variant; its name says how it differs from the others."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfuse.dotted import flatten
from fedfuse.files import slug
from fedfuse.records.record import RoundRecord
from fedfuse.records.statistics import Row, deviation
from fedfuse.records.stored import StoredExperiment, StoredRun

SAME_VARIANT = ("run.seed", "run.workers", "run.track")  # settings that make no other variant


@dataclass(frozen=True)
class Variant:
    """One set of settings, over its seeds."""

    name: str
    runs: Sequence[StoredRun]  # by seed; each has rounds
    colour: int
    suffix: str = ""  # of the keys of its own figures, where there are other lines

    @property
    def row(self) -> Row:
        return Row(self.name, self.runs)

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]

    def over_rounds(self, pick: Callable[[RoundRecord], float | None]) -> Band:
        """A number of each round, in the mean over the seeds that have it."""
        values: dict[int, list[float]] = {}
        for run in self.runs:
            for record in run.history:
                if (value := pick(record)) is not None:
                    values.setdefault(record.round, []).append(value)
        rounds = sorted(values)
        return Band(
            rounds,
            [statistics.fmean(values[r]) for r in rounds],
            [deviation(values[r]) for r in rounds],
            most=max((len(v) for v in values.values()), default=0),
        )

    def last(self, pick: Callable[[RoundRecord], float | None]) -> list[float]:
        """The number of each seed's last round that has it."""
        last: list[float] = []
        for run in self.runs:
            values = [v for v in map(pick, run.history) if v is not None]
            last += values[-1:]
        return last


@dataclass(frozen=True)
class Band:
    """A curve: mean and deviation over seeds at each round. `most` is how many seeds there were at most."""

    rounds: list[int]
    mean: list[float]
    deviation: list[float]
    most: int

    def __bool__(self) -> bool:
        return bool(self.rounds)


def variants_of(runs: Sequence[StoredRun], names: Mapping[Path, str] | None = None) -> list[Variant]:
    """In the order in which they are given; FedAvg, the usual baseline, first. `names` names runs by their paths."""
    groups: dict[str, list[StoredRun]] = {}
    for run in runs:
        if run.history:
            groups.setdefault(_key(run.experiment), []).append(run)
    ordered = sorted(groups.values(), key=lambda group: group[0].experiment.algorithm.name != "fedavg")
    by_settings = _names([group[0].experiment for group in ordered])
    called = [(names or {}).get(group[0].path, name) for group, name in zip(ordered, by_settings, strict=True)]
    return [
        Variant(name, sorted(group, key=lambda r: r.seed), number, f"-{slug(name, '=')}" if len(ordered) > 1 else "")
        for number, (name, group) in enumerate(zip(called, ordered, strict=True))
    ]


def _key(experiment: StoredExperiment) -> str:
    return json.dumps(_settings(experiment), sort_keys=True, default=str)


def _settings(experiment: StoredExperiment) -> dict[str, Any]:
    """What makes a run another variant, by dotted keys."""
    table = {key: value for key, value in experiment.table.items() if key != "provenance"}
    return {key: value for key, value in flatten(table).items() if key not in SAME_VARIANT}


def _names(experiments: Sequence[StoredExperiment]) -> list[str]:
    """The algorithm's name; where that is not enough, with the settings in which its namesakes differ."""
    settings = [_settings(experiment) for experiment in experiments]
    names = []
    for own in settings:
        algorithm = own["algorithm.name"]
        namesakes = [other for other in settings if other["algorithm.name"] == algorithm]
        keys = sorted({key for other in namesakes for key in other})
        differ = [key for key in keys if len({repr(other.get(key)) for other in namesakes}) > 1]
        listed = ", ".join(f"{key.removeprefix('algorithm.')}={_shown(own[key])}" for key in differ if key in own)
        names.append(f"{algorithm}({listed})" if listed else algorithm)
    return names


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
