"""Several algorithms and seeds side by side: the same partition, cohorts and initial weights for each seed.

They are the same because they are drawn by key from the seed alone; the algorithm is not part of the key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedfuse.data.sources.location import Shelf
from fedfuse.terminal.progress import Display
from fedfuse.config.experiment import Experiment, algorithm_settings, overridden
from fedfuse.runs.run import Run
from fedfuse.records.directory import EXPERIMENT
from fedfuse.records.statistics import Row
from fedfuse.types import FedfuseError


def variants(
    experiment: Experiment, algorithms: Sequence[str], seeds: Sequence[int]
) -> Mapping[tuple[str, int], Experiment]:
    """The experiment with each algorithm and seed. Settings of the experiment's own algorithm stay with it.

    Cohorts are drawn in one way for all, also where an algorithm's paper draws them in another.
    """
    base = overridden(experiment.resolved(), {"run.selection": experiment.run_.selection or "uniform"})
    made: dict[tuple[str, int], Experiment] = {}
    for name in algorithms:
        for seed in seeds:
            settings = {**algorithm_settings(name), "run.seed": seed}
            made[name, seed] = Experiment(**overridden(base, settings))
    return made


def compare(
    experiment: Experiment, algorithms: Sequence[str], seeds: Sequence[int], out: Path, display: Display
) -> list[Row]:
    """Run what is not finished under `out`, and gather everything. All are checked before the first is run."""
    runs: dict[tuple[str, int], Run] = {}
    made = variants(experiment, algorithms, seeds)
    for name in algorithms:
        try:
            made[name, seeds[0]].check(Shelf.at(progress=display.preparing))
        except FedfuseError as error:
            raise FedfuseError(f"{name}: {error}") from error
    for number, ((name, seed), variant) in enumerate(made.items(), 1):
        display.run_of_many(number, len(made))
        path = out / f"{re.sub(r'[^A-Za-z0-9.=-]+', '-', name).strip('-')}-seed{seed}"
        runs[name, seed] = variant.run(path, resume=(path / EXPERIMENT).exists(), display=display)
    return [Row(name, [runs[name, seed] for seed in seeds]) for name in algorithms]
