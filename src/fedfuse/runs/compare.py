"""Compare algorithms over seeds. For each seed, all share the partition, the cohorts and the initial weights.

These are the same because they are drawn by key from the seed; the algorithm is not part of the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfuse.config.experiment import Experiment
from fedfuse.config.overlay import algorithm_settings
from fedfuse.data.sources.location import Location
from fedfuse.files import slug
from fedfuse.records.directory import EXPERIMENT
from fedfuse.records.statistics import Row
from fedfuse.runs.display import Display
from fedfuse.runs.progress import from_python
from fedfuse.runs.result import Comparison, Run
from fedfuse.runs.run import run
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
    progress: bool = True,
    display: Display | None = None,
) -> Comparison:
    """Run everything that is not finished under `out`, and return a row per algorithm. Check all before the first run.

    algorithms: as on the command line, `fedavg` or `fedprox(mu=0.1)`. seeds: by default only the experiment's own.
    progress, display: as of `run`.
    """
    planned = Planned(experiment, algorithms, Path(out or default_folder(experiment)))
    with from_python(display, progress) as shown:
        return compare_all([planned], seeds or [experiment.run.seed], shown)[0]


@dataclass(frozen=True)
class Planned:
    """A comparison to run: algorithms on an experiment, in a folder."""

    experiment: Experiment
    algorithms: Sequence[str]
    folder: Path

    def path(self, algorithm: str, seed: int) -> Path:
        """The directory of one run."""
        return self.folder / f"{slug(algorithm, '=')}-seed{seed}"


def compare_all(comparisons: Sequence[Planned], seeds: Sequence[int], display: Display) -> list[Comparison]:
    """Run several comparisons, one after the other, as if they were one: the display counts the runs of all."""
    total, results = len(seeds) * sum(len(c.algorithms) for c in comparisons), list[Comparison]()
    for planned in comparisons:
        before = len(seeds) * sum(len(each) for each in results)
        results.append(_compare(planned, seeds, display, before, total))
    return results


def _compare(planned: Planned, seeds: Sequence[int], display: Display, before: int, total: int) -> Comparison:
    algorithms = planned.algorithms
    experiments, runs = variants(planned.experiment, algorithms, seeds), dict[tuple[int, str], Run]()
    _refuse_doubles(experiments, algorithms, seeds)
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
            path = planned.path(name, seed)
            resume = (path / EXPERIMENT).exists()
            runs[seed, name] = run(experiments[seed, name], path, resume=resume, display=display, federation=federation)
    return Comparison([Row(name, [runs[seed, name] for seed in seeds]) for name in algorithms], planned.folder)


def _refuse_doubles(
    experiments: Mapping[tuple[int, str], Experiment], algorithms: Sequence[str], seeds: Sequence[int]
) -> None:
    """Raise an error if there is nothing to compare, or twice the same: algorithm with all its settings, or seed."""
    if not algorithms:
        raise FedfuseError("compare: there is no algorithm: name at least one, as in fedavg")
    if len(set(seeds)) < len(seeds):
        raise FedfuseError(f"seeds = {list(seeds)}: a seed is given twice: give each once")
    before: list[tuple[str, dict[str, Any]]] = []
    for name in algorithms:
        settings = experiments[seeds[0], name].resolved()
        for other, others in before:
            if settings == others:
                same = "is given twice" if name == other else f"has the same settings as {other}"
                raise FedfuseError(f"{name} {same}: leave one of them out")
        before.append((name, settings))


def default_folder(experiment: Experiment) -> Path:
    return Path("runs") / f"compare-{experiment.name}"
