"""Statistics of an algorithm's runs: over seeds, and up to a target accuracy."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fedfuse.records.amounts import count, mean_count
from fedfuse.records.record import RoundRecord, accuracies


class WithHistory(Protocol):
    """A run in memory or on disk, with at least one round that was evaluated."""

    @property
    def history(self) -> Sequence[RoundRecord]: ...


@dataclass(frozen=True, repr=False)
class Row:
    """The runs of one algorithm, one per seed. Only rounds that were evaluated have an accuracy to count."""

    algorithm: str
    runs: Sequence[WithHistory]

    @property
    def name(self) -> str:
        """The algorithm without its settings."""
        return self.algorithm.partition("(")[0].strip()

    @property
    def best(self) -> list[float]:
        return [max(accuracies(run.history).values()) for run in self.runs]

    @property
    def final(self) -> list[float]:
        """The accuracy after the last evaluated round of each run."""
        return [list(accuracies(run.history).values())[-1] for run in self.runs]

    @property
    def mean_over_rounds(self) -> list[float]:
        return [statistics.fmean(accuracies(run.history).values()) for run in self.runs]

    def by_round(self) -> dict[int, list[float]]:
        """Return the accuracies over the seeds by round, for the rounds that all of them have evaluated."""
        each = [accuracies(run.history) for run in self.runs]
        return {number: [one[number] for one in each] for number in each[0] if all(number in one for one in each)}

    def mean_by_round(self) -> list[float]:
        """Return the mean accuracy over the seeds, for each evaluated round."""
        return [statistics.fmean(values) for values in self.by_round().values()]

    @property
    def seconds(self) -> float:
        return sum(sum(r.seconds.values()) for run in self.runs for r in run.history)

    def __repr__(self) -> str:
        return f"Row({self.algorithm!r}, {len(self.runs)} runs, final accuracy {spread(self.final)} %)"

    def reached(self, target: float) -> list[RoundRecord | None]:
        """Return for each seed the first evaluated round at or above the target, or None."""
        return [next((r for r in run.history if _reaches(r, target)), None) for run in self.runs]

    def rounds_to(self, target: float) -> str:
        """Mean number of rounds to the target over seeds; `> rounds` if a seed did not reach it."""
        spent = self.spent(target)
        return f"> {spent.rounds:g}" if spent.bound else mean_count(spent.rounds)

    def parameters_to(self, target: float) -> str:
        """Mean parameters sent, up and down, to the target: Fed-ET's C_acc(x); `> mean` if a seed did not reach it."""
        spent = self.spent(target)
        return f"> {count(spent.parameters)}" if spent.bound else count(spent.parameters)

    def spent(self, target: float) -> Spent:
        """Return what was spent until the target."""
        reached = self.reached(target)
        rounds = [r.round for r in reached if r is not None]
        totals = [
            _parameters_sent(run, None if r is None else r.round) for run, r in zip(self.runs, reached, strict=True)
        ]
        bound = None in reached
        last = max(accuracies(self.runs[0].history))  # the last evaluated round
        return Spent(last if bound else statistics.fmean(rounds), statistics.fmean(totals), bound=bound)


@dataclass(frozen=True)
class Spent:
    """Rounds and parameters until a target, means over seeds. A lower bound if a seed never reached the target."""

    rounds: float
    parameters: float
    bound: bool


@dataclass(frozen=True)
class Difference:
    """A mean difference over paired seeds, and its standard error; none for a single seed."""

    mean: float
    error: float | None
    seeds: int = 1

    @classmethod
    def paired(cls, ours: Sequence[float], theirs: Sequence[float]) -> Difference:
        each = [a - b for a, b in zip(ours, theirs, strict=True)]
        error = statistics.stdev(each) / math.sqrt(len(each)) if len(each) > 1 else None
        return cls(statistics.fmean(each), error, len(each))

    @property
    def clear(self) -> bool:
        """Whether it is more than two standard errors from zero."""
        return self.error is not None and abs(self.mean) > 2 * self.error

    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of Student's t: for few seeds it is much wider than two standard errors."""
        from scipy.special import stdtrit  # takes time, and only reports need it

        if self.error is None:
            raise ValueError("one seed has no interval")
        reach = float(stdtrit(self.seeds - 1, 0.975)) * self.error
        return self.mean - reach, self.mean + reach

    def points(self) -> str:
        """Return it in points of accuracy. Within two standard errors of zero it is called noise."""
        if self.error is None:
            return f"{100 * self.mean:+.2f}, one seed"
        text = f"{100 * self.mean:+.2f} ± {100 * self.error:.2f}"
        return text if self.clear else f"{text}, within noise"


def best_round(run: WithHistory) -> int:
    """Return the number of the evaluated round with the highest accuracy, of equal ones the first."""
    by_round = accuracies(run.history)
    return max(by_round, key=lambda number: by_round[number])


def _reaches(record: RoundRecord, target: float) -> bool:
    return record.test_accuracy is not None and record.test_accuracy >= target


def _parameters_sent(run: WithHistory, until: int | None) -> int:
    """Count the parameters sent up to the round `until`, by default the last evaluated one."""
    last = max(accuracies(run.history)) if until is None else until
    return sum(r.params_up + r.params_down for r in run.history if r.round <= last)


def spread(values: Sequence[float]) -> str:
    """Return the mean and standard deviation over seeds as text, in percent."""
    mean = f"{100 * statistics.fmean(values):.2f}"
    return f"{mean} ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else mean


def deviation(values: Sequence[float]) -> float:
    """Return the sample standard deviation; 0.0 for a single value."""
    return statistics.stdev(values) if len(values) > 1 else 0.0
