"""Several algorithms and seeds side by side: the same partition, cohorts and initial weights for each seed.

They are the same because they are drawn by key from the seed alone; the algorithm is not part of the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedfuse.config.experiment import Experiment
from fedfuse.config.overlay import algorithm_settings, overlaid
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
    """The experiment with each seed and algorithm. Settings of the experiment's own algorithm stay with it.

    Cohorts are drawn in one way for all, also where an algorithm's paper draws them in another.
    """
    base = overlaid(experiment.resolved(), {"run.selection": experiment.run.selection or "uniform"})
    return {
        (seed, name): Experiment(**overlaid(base, {**algorithm_settings(name), "run.seed": seed}))
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
    """Run what is not finished under `out`, and gather everything. All are checked before the first is run.

    algorithms: as on the command line, `fedavg` or `fedprox(mu=0.1)`. seeds: by default the experiment's own.
    """
    display, folder = display or Silent(), Path(out or default_folder(experiment))
    seeds = seeds or [experiment.run.seed]
    each, runs = variants(experiment, algorithms, seeds), dict[tuple[int, str], Run]()
    location = Location.at(progress=display.preparing)
    for seed in seeds:
        federation = load_federation(each[seed, algorithms[0]], location)  # the algorithms of a seed share it
        for name in algorithms if seed == seeds[0] else ():
            try:
                check_setup(set_up(each[seed, name], federation))
            except FedfuseError as error:
                raise FedfuseError(f"{name}: {error}") from error
        for name in algorithms:
            display.run_of_many(len(runs) + 1, len(each))
            path = folder / f"{slug(name, '=')}-seed{seed}"
            resume = (path / EXPERIMENT).exists()
            runs[seed, name] = run(each[seed, name], path, resume=resume, display=display, federation=federation)
    return [Row(name, [runs[seed, name] for seed in seeds]) for name in algorithms]


def default_folder(experiment: Experiment) -> Path:
    return Path("runs") / f"compare-{experiment.name}"
