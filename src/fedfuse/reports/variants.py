"""Group runs that differ only in their seed into variants, named by the settings in which they differ."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfuse.dotted import flatten
from fedfuse.files import slug
from fedfuse.records.record import RoundRecord, accuracies
from fedfuse.records.statistics import Difference, Row, deviation
from fedfuse.records.stored import StoredExperiment, StoredRun

SAME_VARIANT = ("run.seed", "run.workers", "run.track")  # settings that do not distinguish variants


@dataclass(frozen=True)
class Variant:
    """The runs of one set of settings, one for each seed."""

    name: str
    runs: Sequence[StoredRun]  # sorted by seed; each has at least one evaluated round
    colour: int
    suffix: str = ""  # of the keys of its own figures, if there are other variants
    rank: int | None = None  # in a sweep, by validation data

    @property
    def row(self) -> Row:
        return Row(self.name, self.runs)

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]

    def over_rounds(self, pick: Callable[[RoundRecord], float | None]) -> Band:
        """Return the mean of a number at each round, over the seeds that have it."""
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
        """Return, for each seed, the number in the last round that has it."""
        last: list[float] = []
        for run in self.runs:
            values = [v for v in map(pick, run.history) if v is not None]
            last += values[-1:]
        return last


@dataclass(frozen=True)
class Band:
    """A curve: mean and deviation over seeds at each round. `most` is the largest number of seeds at a round."""

    rounds: list[int]
    mean: list[float]
    deviation: list[float]
    most: int

    def __bool__(self) -> bool:
        return bool(self.rounds)


def variants_of(runs: Sequence[StoredRun], names: Mapping[Path, str] | None = None) -> list[Variant]:
    """Return the variants in the order of `runs`, but FedAvg, the baseline, first.

    names: the names of ranked variants by the paths of their runs, the best first.
    """
    groups: dict[str, list[StoredRun]] = {}
    for run in runs:
        if accuracies(run.history):
            groups.setdefault(_key(run.experiment), []).append(run)
    ordered = sorted(groups.values(), key=lambda group: group[0].experiment.algorithm.name != "fedavg")
    by_settings = _names([group[0].experiment for group in ordered])
    labels = [(names or {}).get(group[0].path, name) for group, name in zip(ordered, by_settings, strict=True)]
    ranks = {name: rank for rank, name in enumerate(dict.fromkeys((names or {}).values()), 1)}
    return [
        Variant(
            name,
            sorted(group, key=lambda r: r.seed),
            number,
            f"-{slug(name, '=')}" if len(ordered) > 1 else "",
            ranks.get(name),
        )
        for number, (name, group) in enumerate(zip(labels, ordered, strict=True))
    ]


def by_result(variants: Sequence[Variant]) -> list[Variant]:
    """Return the variants in the order of every table: by final test accuracy, or by their ranks in a sweep."""
    return sorted(variants, key=lambda variant: variant.rank or -statistics.fmean(variant.row.final))


def baseline(variants: Sequence[Variant]) -> Variant:
    """Return FedAvg if present (it then comes first), else the first variant."""
    return variants[0]


def gain(ours: Variant, over: Variant) -> Difference | None:
    """Return the difference of final accuracies over common seeds, whose runs share partition and cohorts."""
    mine, theirs = (dict(zip(variant.seeds, variant.row.final, strict=True)) for variant in (ours, over))
    both = sorted(mine.keys() & theirs.keys())
    return Difference.paired([mine[s] for s in both], [theirs[s] for s in both]) if both else None


def _key(experiment: StoredExperiment) -> str:
    return json.dumps(_settings(experiment), sort_keys=True, default=str)


def _settings(experiment: StoredExperiment) -> dict[str, Any]:
    """Return the settings that distinguish variants, by dotted key."""
    table = {key: value for key, value in experiment.table.items() if key != "provenance"}
    return {key: value for key, value in flatten(table).items() if key not in SAME_VARIANT}


def _names(experiments: Sequence[StoredExperiment]) -> list[str]:
    """Return the algorithms' names, with the settings in which variants of one algorithm differ."""
    settings = [_settings(experiment) for experiment in experiments]
    names = []
    for own in settings:
        algorithm = own["algorithm.name"]
        same_algorithm = [other for other in settings if other["algorithm.name"] == algorithm]
        keys = sorted({key for other in same_algorithm for key in other})
        differ = [key for key in keys if len({repr(other.get(key)) for other in same_algorithm}) > 1]
        text = ", ".join(f"{key.removeprefix('algorithm.')}={_format(own[key])}" for key in differ if key in own)
        names.append(f"{algorithm}({text})" if text else algorithm)
    return names


def _format(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
