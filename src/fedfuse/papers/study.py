"""Run a table or figure: a comparison for each of its groups, or the function that measures it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import fedfuse
from fedfuse import signature
from fedfuse.config.experiment import Experiment
from fedfuse.config.experiment import load as load_experiment
from fedfuse.files import slug
from fedfuse.papers.item import Group, Item, Row, ScaleName
from fedfuse.papers.result import Curves, Result
from fedfuse.records.record import RoundRecord
from fedfuse.records.statistics import WithHistory
from fedfuse.runs.compare import Planned, compare_all
from fedfuse.runs.display import Display, Silent
from fedfuse.types import FedfuseError

PICTURE = "picture.png"
# Measures an item without a comparison. Returns group -> row -> seed -> round, and writes to the folder its picture, if
# the item has one.
Measuring = Callable[[Item, ScaleName, Sequence[int], Path, Display], Curves]


def run(
    name: str,
    item: Item,
    scale: ScaleName,
    *,
    seeds: int | None = None,
    out: Path,
    settings: Mapping[str, Any] | None = None,
    groups: Sequence[str] = (),
    display: Display | None = None,
) -> Result:
    """Measure an item at a scale. Runs that are finished under `out` are not repeated, others continue.

    settings: further dotted keys of the experiment, for all groups. groups: by default all of the scale.
    """
    item = item.at(scale, groups)
    if settings and item.measured_by is not None:
        raise FedfuseError(f"{name} is measured by a function of its own, which has no {', '.join(settings)}")
    start, display = perf_counter(), display or Silent()
    numbers = range(seeds or item.scale(scale).seeds)
    sent: Curves = {}
    if item.measured_by is not None:
        measure: Measuring = signature.import_function(item.measured_by, "measure")
        curves = measure(item, scale, numbers, out, display)
    else:
        curves, sent = compared(item, scale, numbers, out, settings or {}, display)
    scale_option = "" if scale == "small" else f" --scale {scale}"
    return Result(
        item=name,
        scale=scale,
        seeds=list(numbers),
        date=datetime.now(UTC).date().isoformat(),
        commit=commit(),
        command=f"fedfuse papers run {name}{scale_option} --seeds {len(numbers)}"
        + "".join(f' --group "{group}"' for group in groups)
        + "".join(f" --set {key}={value}" for key, value in (settings or {}).items()),
        minutes=round((perf_counter() - start) / 60, 1),
        setting=described(item, scale, settings),
        curves=curves,
        sent=sent,
    )


def compared(
    item: Item, scale: ScaleName, seeds: Sequence[int], out: Path, settings: Mapping[str, Any], display: Display
) -> tuple[Curves, Curves]:
    """Run the comparison of each group. Return the rows' curves, and the parameters that were sent up to each round."""
    algorithms = [_algorithms(item, group, scale) for group in item.groups]
    comparisons = [
        Planned(experiment_of(item, group, scale, settings), of_group, out / slug(group.name, "="))
        for group, of_group in zip(item.groups, algorithms, strict=True)
    ]
    curves, sent = {}, {}
    every = compare_all(comparisons, seeds, display)
    for group, of_group, rows in zip(item.groups, algorithms, every, strict=True):
        runs = dict(zip(of_group, (row.runs for row in rows), strict=True))
        runs_of = {row: runs[item.algorithm(row, scale, group)] for row in item.rows_of(group.name)}
        curves[group.name] = {row.name: [_series(run, row) for run in each] for row, each in runs_of.items()}
        if item.targets:
            sent[group.name] = {row.name: [_parameters(run) for run in each] for row, each in runs_of.items()}
    return curves, sent


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


def described(item: Item, scale: ScaleName, settings: Mapping[str, Any] | None = None) -> str:
    """Return the scale in words: data, clients, rounds, local work, and how it differs from the paper's."""
    if not item.scale(scale).experiment:
        return item.scale(scale).note
    first = experiment_of(item, item.groups[0], scale, settings)
    local = f"{first.local.epochs} local epochs" if first.local.epochs else f"{first.local.steps} local steps"
    varied = {key for group in item.groups for key in group.settings}
    texts = [
        f"experiment {item.scale(scale).experiment}",
        f"{first.partition.clients} clients",
        *([] if first.run.fraction == 1 else [f"{first.run.fraction:.0%} a round"]),
        f"{first.run.rounds} rounds",
        *([] if {"local.epochs", "local.steps"} & varied else [local]),
    ]
    return ", ".join(texts) + (f". {item.scale(scale).note}" if item.scale(scale).note else "")


def commit() -> str:
    """Return the commit of the source that is imported; outside a checkout, the version."""
    git, folder = shutil.which("git"), Path(fedfuse.__file__).parent
    if git is not None:
        told = subprocess.run(
            [git, "-C", str(folder), "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True
        )
        if told.returncode == 0:
            return told.stdout.strip()
    return f"version {fedfuse.__version__}"
