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
from fedfuse.papers.comparison import Measured, compared, experiment_of
from fedfuse.papers.item import Item, ScaleName
from fedfuse.papers.result import Curves, Result
from fedfuse.reports.to_picture import check_matplotlib
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
    rows: Sequence[str] = (),
    recorded: bool = False,
    display: Display | None = None,
) -> Result:
    """Measure an item at a scale. Runs that are finished under `out` are not repeated, others continue.

    settings: further dotted keys of the experiment, for all groups. groups, rows: by default all of the scale.
    recorded: train nothing, and take the rounds that all runs of a group have under `out`.
    """
    item = item.at(scale, groups, rows)
    if settings and item.measured_by is not None:
        raise FedfuseError(f"{name} is measured by a function of its own, which has no {', '.join(settings)}")
    if recorded and item.measured_by is not None:
        raise FedfuseError(f"{name} is measured by a function of its own, which keeps no record of rounds")
    if item.picture:
        check_matplotlib()
    start, display = perf_counter(), display or Silent()
    numbers = range(seeds or item.scale(scale).seeds)
    if item.measured_by is not None:
        measure: Measuring = signature.import_function(item.measured_by, "measure")
        curves = measure(item, scale, numbers, out, display)
        measured = Measured(curves, {}, perf_counter() - start)
    else:
        measured = compared(item, scale, numbers, out, settings, display, recorded)
    scale_option = "" if scale == "small" else f" --scale {scale}"
    return Result(
        item=name,
        scale=scale,
        seeds=list(numbers),
        date=datetime.now(UTC).date().isoformat(),
        commit=commit(),
        command=f"fedfuse papers run {name}{scale_option} --seeds {len(numbers)}"
        + "".join(f' --group "{group}"' for group in groups)
        + "".join(f' --row "{row}"' for row in rows)
        + "".join(f" --set {key}={value}" for key, value in (settings or {}).items()),
        minutes=round(measured.seconds / 60, 1),
        setting=described(item, scale, settings) + measured.unfinished,
        curves=measured.curves,
        sent=measured.sent,
    )


def described(item: Item, scale: ScaleName, settings: Mapping[str, Any] | None = None) -> str:
    """Return the scale in words: data, clients, rounds, local work, and how it differs from the paper's."""
    if not item.scale(scale).experiment:
        return item.scale(scale).note
    experiments = [experiment_of(item, group, scale, settings) for group in item.groups]
    schedules = [[_clients(one), *(_schedule(one) if item.trained else ())] for one in experiments]
    texts = [f"experiment {item.scale(scale).experiment}", *_common(schedules)]
    return ", ".join(texts) + (f". {item.scale(scale).note}" if item.scale(scale).note else "")


def _clients(experiment: Experiment) -> str:
    return f"{experiment.partition.clients} clients"


def _schedule(experiment: Experiment) -> list[str]:
    local, run = experiment.local, experiment.run
    return [
        "" if run.fraction == 1 else f"{run.fraction:.0%} a round",
        f"{run.rounds} round{'s' if run.rounds > 1 else ''}",
        f"{local.epochs} local epoch{'s' if local.epochs > 1 else ''}"
        if local.epochs
        else f"{local.steps} local steps",
    ]


def _common(schedules: Sequence[Sequence[str]]) -> list[str]:
    """Return what is the same in all groups: what varies is in their names."""
    return [texts[0] for texts in zip(*schedules, strict=True) if len(set(texts)) == 1 and texts[0]]


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
