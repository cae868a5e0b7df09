"""Several algorithms and seeds side by side: the same partition, cohorts and initial weights for each seed.

They are the same because they are drawn by key from the seed alone; the algorithm is not part of the key.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedfuse.data.shelf import Shelf
from fedfuse.display import Display
from fedfuse.experiment import Experiment, algorithm_settings, overridden
from fedfuse.record import RoundRecord
from fedfuse.run import Run
from fedfuse.run_directory import EXPERIMENT
from fedfuse.types import FedfuseError


@dataclass(frozen=True)
class Row:
    """One algorithm over its seeds."""

    algorithm: str
    runs: Sequence[Run]

    @property
    def name(self) -> str:
        """The algorithm without its settings."""
        return self.algorithm.partition("(")[0].strip()

    @property
    def best(self) -> list[float]:
        return [run.best.test_accuracy for run in self.runs]

    @property
    def final(self) -> list[float]:
        return [run.final.test_accuracy for run in self.runs]

    @property
    def mean_over_rounds(self) -> list[float]:
        return [statistics.fmean(r.test_accuracy for r in run.history) for run in self.runs]

    @property
    def seconds(self) -> float:
        return sum(sum(r.seconds.values()) for run in self.runs for r in run.history)

    def reached(self, target: float) -> list[RoundRecord | None]:
        """For each seed the first round at or above the target, or None."""
        return [next((r for r in run.history if r.test_accuracy >= target), None) for run in self.runs]

    def rounds_to(self, target: float) -> str:
        """Mean rounds to the target over the seeds; censored when a seed never reached it."""
        rounds = [None if r is None else r.round for r in self.reached(target)]
        if None in rounds:
            return f"> {len(self.runs[0].history)}"
        return f"{statistics.fmean(r for r in rounds if r is not None):.1f}"

    def parameters_to(self, target: float) -> str:
        """Mean parameters sent, up and down, until the target: Fed-ET's C_acc(x); censored likewise."""
        sent = [
            _sent(run, None if r is None else r.round) for run, r in zip(self.runs, self.reached(target), strict=True)
        ]
        text = f"{statistics.fmean(sent):.3g}"
        return f"> {text}" if None in self.reached(target) else text


def _sent(run: Run, until: int | None) -> int:
    rounds = [r for r in run.history if until is None or r.round <= until]
    return sum(r.params_up + r.params_down for r in rounds)


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


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation over seeds, in percent."""
    mean = f"{100 * statistics.fmean(values):.2f}"
    return f"{mean} ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else mean
