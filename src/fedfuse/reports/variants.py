"""Runs that differ in nothing but their seed are one line of the report; its name says how it differs from others."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfuse.records.record import RoundRecord
from fedfuse.records.statistics import Row, deviation
from fedfuse.reports.read import RunOnDisk

NO_LINE = ("seed", "workers", "track")  # of [run]: what makes no other line


@dataclass(frozen=True)
class Line:
    """One setting over its seeds."""

    name: str
    runs: Sequence[RunOnDisk]  # by seed; each has rounds
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
            for done in run.history:
                if (value := pick(done)) is not None:
                    values.setdefault(done.round, []).append(value)
        rounds = sorted(values)
        return Band(
            rounds,
            [statistics.fmean(values[r]) for r in rounds],
            [deviation(values[r]) for r in rounds],
            most=max((len(v) for v in values.values()), default=0),
        )

    def last(self, pick: Callable[[RoundRecord], float | None]) -> list[float]:
        """The number of each seed's last round that has it."""
        found = []
        for run in self.runs:
            values = [v for v in map(pick, run.history) if v is not None]
            found += values[-1:]
        return found


@dataclass(frozen=True)
class Band:
    """A curve: mean and deviation over seeds at each round. `most` is how many seeds there were at most."""

    rounds: list[int]
    mean: list[float]
    deviation: list[float]
    most: int

    def __bool__(self) -> bool:
        return bool(self.rounds)


def lines(runs: Sequence[RunOnDisk], called: Mapping[Path, str] | None = None) -> list[Line]:
    """In the order in which they are given; FedAvg, the usual baseline, first. `called` names runs by their paths."""
    groups: dict[str, list[RunOnDisk]] = {}
    for run in runs:
        if run.history:
            groups.setdefault(_key(run.experiment), []).append(run)
    ordered = sorted(groups.values(), key=lambda g: g[0].experiment["algorithm"]["name"] != "fedavg")
    names = _names([group[0].experiment for group in ordered])
    names = [(called or {}).get(group[0].path, name) for group, name in zip(ordered, names, strict=True)]
    return [
        Line(name, sorted(group, key=lambda r: r.seed), number, _suffix(name) if len(ordered) > 1 else "")
        for number, (name, group) in enumerate(zip(names, ordered, strict=True))
    ]


def _suffix(name: str) -> str:
    return "-" + re.sub(r"[^A-Za-z0-9.=-]+", "-", name).strip("-")


def _key(experiment: Mapping[str, Any]) -> str:
    run = {k: v for k, v in experiment["run"].items() if k not in NO_LINE}
    same = {k: v for k, v in experiment.items() if k not in ("provenance", "run")}
    return json.dumps({**same, "run": run}, sort_keys=True, default=str)


def _names(experiments: Sequence[Mapping[str, Any]]) -> list[str]:
    """The algorithm's name; where that is not enough, with the settings in which its namesakes differ."""
    algorithms = [e["algorithm"]["name"] for e in experiments]
    flat = [_flat(e) for e in experiments]
    names = []
    for algorithm, own in zip(algorithms, flat, strict=True):
        akin = [f for a, f in zip(algorithms, flat, strict=True) if a == algorithm]
        differ = sorted(key for key in {k for f in akin for k in f} if len({repr(f.get(key)) for f in akin}) > 1)
        said = ", ".join(f"{key.removeprefix('algorithm.')}={_said(own[key])}" for key in differ if key in own)
        names.append(f"{algorithm}({said})" if said else algorithm)
    return names


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        dotted = f"{prefix}{key}"
        if dotted == "provenance" or (prefix == "run." and key in NO_LINE):
            continue
        flat |= _flat(inner, f"{dotted}.") if isinstance(inner, Mapping) else {dotted: inner}
    return flat


def _said(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
