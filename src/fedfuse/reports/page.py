"""The whole report, as values: which sections there are, in which order. Empty ones do not appear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedfuse.reports.elements import Section
from fedfuse.reports.read import find
from fedfuse.reports.sections import (
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
from fedfuse.reports.variants import Line, lines
from fedfuse.types import FedfuseError


@dataclass(frozen=True)
class Report:
    title: str
    subtitle: str
    sections: Sequence[Section]


def report_of(paths: Sequence[Path], target: float | None = None) -> Report:
    """Everything that the records at these places tell. Of a sweep only its best trials are shown in full."""
    if len(paths) > 1 and any(search.found_at(path) for path in paths):
        raise FedfuseError("a sweep has a report of its own: give its directory alone")
    if target is not None and not 0 < target < 1:
        raise FedfuseError(f"target {target:g}: an accuracy is between 0 and 1, as in 0.85")
    found = next((f for path in paths if (f := search.found_at(path)) is not None), None)
    best = {} if found is None else search.best_runs(found)
    shown = lines(find(list(best) or paths), best)
    sought = None if found is None else search.section(found)
    if not shown:
        return Report("Nothing yet", "No round is on record so far.", [sought] if sought else [])
    goals = [target] if target is not None else targets.default_targets(shown)
    made = [
        sought or verdict.section(shown, goals),  # what is best of a sweep is said by validation data, not by these
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
    title = verdict.title(shown) if found is None else f"{found.experiment}: a sweep"
    return Report(title, _subtitle(shown), [s for s in made if s is not None])


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
