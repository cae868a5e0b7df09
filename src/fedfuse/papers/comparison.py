"""The comparisons behind a table or figure, one for each of its groups: their runs are trained, or read from disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfuse.config.experiment import Experiment
from fedfuse.config.experiment import load as load_experiment
from fedfuse.files import slug
from fedfuse.papers.item import Group, Item, Row, ScaleName
from fedfuse.papers.result import Curves
from fedfuse.records.directory import EXPERIMENT
from fedfuse.records.record import RoundRecord
from fedfuse.records.statistics import Row as Runs
from fedfuse.records.statistics import WithHistory
from fedfuse.records.stored import StoredRun
from fedfuse.runs.compare import Planned, compare_all
from fedfuse.runs.display import Display
from fedfuse.types import FedfuseError


@dataclass(frozen=True)
class Measured:
    """The curves of an item's rows, what was sent up to each round, and how long the rounds took."""

    curves: Curves
    sent: Curves
    seconds: float
    unfinished: str = ""  # a sentence about runs that are not finished, to follow the description of the scale


def compared(
    item: Item,
    scale: ScaleName,
    seeds: Sequence[int],
    out: Path,
    settings: Mapping[str, Any] | None,
    display: Display,
    recorded: bool = False,
) -> Measured:
    """Run the comparison of each group; with `recorded`, take the rounds that are under `out` instead."""
    comparisons = [
        Planned(
            experiment_of(item, group, scale, settings), _algorithms(item, group, scale), out / slug(group.name, "=")
        )
        for group in item.groups
    ]
    every: Sequence[Sequence[Runs]]
    every = [_read(c, seeds) for c in comparisons] if recorded else compare_all(comparisons, seeds, display)
    curves, sent = {}, {}
    for group, rows in zip(item.groups, every, strict=True):
        runs = dict(zip(_algorithms(item, group, scale), (row.runs for row in rows), strict=True))
        runs_of = {row: runs[item.algorithm(row, scale, group)] for row in item.rows_of(group.name)}
        curves[group.name] = {row.name: [_series(run, row) for run in each] for row, each in runs_of.items()}
        if item.targets:
            sent[group.name] = {row.name: [_parameters(run) for run in each] for row, each in runs_of.items()}
    seconds = sum(row.seconds for rows in every for row in rows)
    return Measured(curves, sent, seconds, _unfinished(every) if recorded else "")


@dataclass(frozen=True)
class FirstRounds:
    """The first rounds of a run that is not finished."""

    history: Sequence[RoundRecord]


def _read(planned: Planned, seeds: Sequence[int]) -> list[Runs]:
    """Return the runs on disk, those that are not finished with the rounds that all of these have."""
    stored = {(name, seed): _open(planned.path(name, seed)) for name in planned.algorithms for seed in seeds}
    common = min((len(run.history) for run in stored.values() if not run.finished), default=0)

    def cut(run: StoredRun) -> WithHistory:
        return run if common == 0 or len(run.history) < common else FirstRounds(run.history[:common])

    return [Runs(name, [cut(stored[name, seed]) for seed in seeds]) for name in planned.algorithms]


def _open(path: Path) -> StoredRun:
    run = StoredRun.open(path) if (path / EXPERIMENT).exists() else None
    if run is None or not run.history:
        raise FedfuseError(f"{path}: no round is recorded there: give the command without --recorded first")
    return run


def _unfinished(every: Sequence[Sequence[Runs]]) -> str:
    cut = {len(run.history) for rows in every for row in rows for run in row.runs if isinstance(run, FirstRounds)}
    if not cut:
        return ""
    rounds = str(max(cut)) if len(cut) == 1 else f"{min(cut)} to {max(cut)}"
    return f". Not finished: compared up to round {rounds}"


def _algorithms(item: Item, group: Group, scale: ScaleName) -> list[str]:
    """Return the algorithms of a group's rows, each once: several rows may read different series of one run."""
    return list(dict.fromkeys(item.algorithm(row, scale, group) for row in item.rows_of(group.name)))


def experiment_of(item: Item, group: Group, scale: ScaleName, settings: Mapping[str, Any] | None = None) -> Experiment:
    """Return the experiment of a group."""
    return load_experiment(item.scale(scale).experiment, {**item.settings(group, scale), **(settings or {})})


def _series(run: WithHistory, row: Row) -> list[float]:
    values = [value_of(record, row) for record in run.history]
    if missing := [record.round for record, value in zip(run.history, values, strict=True) if value is None]:
        raise FedfuseError(f"row {row.name!r}: {row.algorithm} records no {row.series} in round {missing[0]}")
    return [round(value, 6) for value in values if value is not None]


def value_of(record: RoundRecord, row: Row) -> float | None:
    """Return the accuracy that a row reads from a round."""
    facts = record.facts
    if row.series == "test":
        return record.test_accuracy
    if row.series in ("average", "student"):
        qualities = [s.average if row.series == "average" else s.student for s in facts.students.values()]
        accuracies = [q.accuracy for q in qualities if q is not None and q.accuracy is not None]
        return sum(accuracies) / len(accuracies) if accuracies else None
    if row.series == "ensemble":
        return None if facts.ensemble is None else facts.ensemble.accuracy
    models = facts.clients if row.series.startswith("clients") else facts.samples
    if models is None or row.series in ("clients", "samples"):
        return None if models is None else models.mean
    return None if models.confidence is None else models.confidence.calibration_error


def _parameters(run: WithHistory) -> list[float]:
    """Return the parameters sent up and down until each round."""
    total, sums = 0, []
    for record in run.history:
        total += record.params_up + record.params_down
        sums.append(float(total))
    return sums
