"""The report as a value: its sections, in order. Empty sections are omitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedfuse.engines.workers import Marker
from fedfuse.records.directory import SCRATCH
from fedfuse.records.stored import StoredRun
from fedfuse.reports.elements import Section
from fedfuse.reports.read import find
from fedfuse.reports.sections import (
    calibration,
    classes,
    clients,
    cost,
    decision,
    incidents,
    learning,
    origin,
    search,
    targets,
    verdict,
)
from fedfuse.reports.variants import variants_of
from fedfuse.types import FedfuseError

NAMED = ("alpha", "per_client", "major", "minor", "column")  # partition settings shown in the subtitle


@dataclass(frozen=True)
class Report:
    title: str
    subtitle: str
    sections: Sequence[Section]
    decision: str = ""  # the sentence on top


def report_of(paths: Sequence[Path], target: float | None = None) -> Report:
    """Build the report from the records in these directories. Of a sweep, only the best trials are shown in full."""
    sweeps = [sweep for path in paths if (sweep := search.sweep_at(path)) is not None]
    if sweeps and len(paths) > 1:
        raise FedfuseError(f"{sweeps[0].path} is a sweep, which has its own report: give its directory alone")
    if target is not None and not 0 < target <= 1:
        raise FedfuseError(f"target {target:g}: give an accuracy between 0 and 1, such as 0.85")
    best = search.best_runs(sweeps[0]) if sweeps else {}
    runs = find(list(best) or paths)
    variants = variants_of(runs, best)
    of_sweep = search.section(sweeps[0]) if sweeps else None
    if not variants:
        return _without_rounds(runs, [of_sweep] if of_sweep else [])
    goals = [target] if target is not None else targets.default_targets(variants)
    sections = [
        # A sweep selects by validation data, so it has no verdict, which compares by test data.
        of_sweep or verdict.section(variants, goals),
        learning.section(variants, target),
        targets.section(variants, goals),
        learning.distillation(variants),
        calibration.section(variants),
        classes.section(variants),
        clients.section(variants),
        cost.section(variants),
        incidents.section(variants),
        origin.section(variants),
    ]
    title = f"{sweeps[0].experiment}: a sweep" if sweeps else verdict.title(variants)
    text = decision.of_sweep(sweeps[0], variants) if sweeps else decision.decision(variants)
    return Report(title, _subtitle(variants[0].runs[0]), [s for s in sections if s is not None], text)


def _without_rounds(runs: Sequence[StoredRun], sections: Sequence[Section]) -> Report:
    """Return the page of runs that have no evaluated round yet: how far their start is."""
    run = runs[-1]
    name = f"{run.experiment.name}: {run.experiment.algorithm.name}"
    return Report(name, _subtitle(run), sections, _start(run))


def _start(run: StoredRun) -> str:
    if run.history:
        return "No round has been evaluated yet."
    if run.events and run.events[-1].kind == "stopped":
        return f"Stopped before round 1 ended: {run.events[-1].text}"
    states = Marker.states(run.path / SCRATCH)
    ready = states.count("ready")
    if ready < len(states):
        verb = "is" if ready == 1 else "are"
        return (
            f"Starting: {ready} of {len(states)} worker processes {verb} ready; each loads PyTorch and the data. "
            f"Round 1 of {run.rounds} follows."
        )
    workers = f" by {len(states)} workers" if states else ""
    return f"Round 1 of {run.rounds} is under way{workers}, and is shown here when it ends."


def _subtitle(run: StoredRun) -> str:
    experiment, partition = run.experiment, run.experiment.partition
    settings = ", ".join(f"{key} {value}" for key, value in (partition.model_extra or {}).items() if key in NAMED)
    clients = f"{partition.clients} clients, {f'{partition.scheme} {settings}'.strip()}"
    texts = [experiment.data.source, clients]
    if run.federation is not None:
        sizes = run.federation.examples
        texts.append(f"{sizes.train:,} training, {sizes.test:,} test examples")
        texts += [f"{sizes.pool:,} unlabeled"] if sizes.pool else []
    texts.append(f"{run.rounds} rounds")
    return " · ".join(texts)
