"""Compare algorithms over seeds. For each seed, all share the partition, the cohorts and the initial weights.

These are the same because they are drawn by key from the seed; the algorithm is not part of the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedfuse.config.experiment import Experiment
from fedfuse.config.overlay import algorithm_settings
from fedfuse.data.sources.location import Location
from fedfuse.files import slug
from fedfuse.records.directory import EXPERIMENT
from fedfuse.records.statistics import Row
from fedfuse.runs.display import Display, Silent
from fedfuse.runs.run import Run, run
from fedfuse.runs.setup import check_setup, load_federation, set_up
from fedfuse.types import FedfuseError


def variants(
    experiment: Experiment, algorithms: Sequence[str], seeds: Sequence[int]
) -> Mapping[tuple[int, str], Experiment]:
    """Return the experiment for each seed and algorithm. The experiment's own algorithm keeps its settings.

    Cohorts are drawn in the same way for all algorithms, even where an algorithm's paper draws them differently.
    """
    base = experiment.with_settings({"run.selection": experiment.run.selection or "uniform"})
    return {
        (seed, name): base.with_settings({**algorithm_settings(name), "run.seed": seed})
        for seed in seeds
        for name in algorithms
    }


def compare(
    experiment: Experiment,
    algorithms: Sequence[str],
    *,
    seeds: Sequence[int] | None = None,
    out: str | Path | None = None,
    display: Display | None = None,
) -> list[Row]:
    """Run everything that is not finished under `out`, and return a row per algorithm. Check all before the first run.

    algorithms: as on the command line, `fedavg` or `fedprox(mu=0.1)`. seeds: by default only the experiment's own.
    """
    comparison = Comparison(experiment, algorithms, Path(out or default_folder(experiment)))
    return compare_all([comparison], seeds or [experiment.run.seed], display)[0]


@dataclass(frozen=True)
class Comparison:
    """Algorithms on an experiment, in a folder."""

    experiment: Experiment
    algorithms: Sequence[str]
    folder: Path


def compare_all(
    comparisons: Sequence[Comparison], seeds: Sequence[int], display: Display | None = None
) -> list[list[Row]]:
    """Run several comparisons, one after the other, as if they were one: the display counts the runs of all."""
    display = display or Silent()
    total, rows = len(seeds) * sum(len(c.algorithms) for c in comparisons), list[list[Row]]()
    for comparison in comparisons:
        before = len(seeds) * sum(len(each) for each in rows)
        rows.append(_compare(comparison, seeds, display, before, total))
    return rows


def _compare(comparison: Comparison, seeds: Sequence[int], display: Display, before: int, total: int) -> list[Row]:
    algorithms = comparison.algorithms
    experiments, runs = variants(comparison.experiment, algorithms, seeds), dict[tuple[int, str], Run]()
    location = Location.at(progress=display.preparing)
    for seed in seeds:
        federation = load_federation(experiments[seed, algorithms[0]], location)  # the same for all algorithms
        for name in algorithms if seed == seeds[0] else ():
            try:
                check_setup(set_up(experiments[seed, name], federation))
            except FedfuseError as error:
                raise FedfuseError(f"{name}: {error}") from error
        for name in algorithms:
            display.run_of_many(before + len(runs) + 1, total)
            path = comparison.folder / f"{slug(name, '=')}-seed{seed}"
            resume = (path / EXPERIMENT).exists()
            runs[seed, name] = run(experiments[seed, name], path, resume=resume, display=display, federation=federation)
    return [Row(name, [runs[seed, name] for seed in seeds]) for name in algorithms]


def default_folder(experiment: Experiment) -> Path:
    return Path("runs") / f"compare-{experiment.name}"
