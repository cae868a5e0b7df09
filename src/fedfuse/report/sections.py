"""The whole report, as values: which sections there are, in which order. Empty ones do not appear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedfuse.report import (
    calibration,
    classes,
    clients,
    cost,
    incidents,
    learning,
    origin,
    search,
    targets,
    verdict,
)
from fedfuse.report.block import Section
from fedfuse.report.lines import Line, lines
from fedfuse.report.read import find
from fedfuse.types import FedfuseError


@dataclass(frozen=True)
class Report:
    title: str
    subtitle: str
    sections: Sequence[Section]


def report_of(paths: Sequence[Path], target: float | None = None) -> Report:
    """Everything that the records at these places tell."""
    if target is not None and not 0 < target < 1:
        raise FedfuseError(f"target {target:g}: an accuracy is between 0 and 1, as in 0.85")
    found = next((f for path in paths if (f := search.read(path)) is not None), None)
    shown = lines(find(_best_trials(paths)))
    sought = [] if found is None else [search.section(found)]
    if not shown:
        return Report("Nothing yet", "No round is on record so far.", [s for s in sought if s])
    goals = [target] if target is not None else targets.default_targets(shown)
    made = [
        verdict.section(shown, goals),
        *sought,
        learning.section(shown, target),
        targets.section(shown, goals),
        learning.distillation(shown),
        calibration.section(shown),
        classes.section(shown),
        clients.section(shown),
        cost.section(shown),
        incidents.section(shown),
        origin.section(shown),
    ]
    return Report(verdict.title(shown), _subtitle(shown), [s for s in made if s is not None])


def _best_trials(paths: Sequence[Path]) -> list[Path]:
    """Of a sweep only its best trials are shown in full: twenty curves tell nothing."""
    chosen: list[Path] = []
    for path in paths:
        found = search.read(path)
        best = [] if found is None else [path / t["path"] for t in search.best_first(found)[: search.SHOWN]]
        chosen += best or [path]
    return chosen


def _subtitle(shown: Sequence[Line]) -> str:
    run = shown[0].runs[0]
    experiment = run.experiment
    settings = ", ".join(f"{k} {v}" for k, v in experiment["partition"].items() if k in ("alpha", "shards", "classes"))
    scheme = f"{experiment['partition']['scheme']} {settings}".strip()
    told = [f"{experiment['data']['source']}", f"{experiment['partition']['clients']} clients, {scheme}"]
    if sizes := run.federation.get("examples"):
        told.append(f"{sizes['train']:,} training, {sizes['test']:,} test examples")
        told += [f"{sizes['pool']:,} unlabeled"] if sizes["pool"] else []
    told.append(f"{run.rounds} rounds")
    return " · ".join(told)
