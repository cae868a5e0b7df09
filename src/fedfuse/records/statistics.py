"""Statistics of an algorithm's runs: over seeds, and up to a target accuracy."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fedfuse.records.record import RoundRecord, accuracies


class WithHistory(Protocol):
    """A run in memory or on disk, with at least one round that was evaluated."""

    @property
    def history(self) -> Sequence[RoundRecord]: ...


@dataclass(frozen=True)
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

    @property
    def seconds(self) -> float:
        return sum(sum(r.seconds.values()) for run in self.runs for r in run.history)

    def reached(self, target: float) -> list[RoundRecord | None]:
        """Return for each seed the first evaluated round at or above the target, or None."""
        return [next((r for r in run.history if _reaches(r, target)), None) for run in self.runs]

    def rounds_to(self, target: float) -> str:
        """Mean number of rounds to the target over seeds; `> rounds` if a seed did not reach it."""
        rounds = [None if r is None else r.round for r in self.reached(target)]
        if None in rounds:
            return f"> {max(accuracies(self.runs[0].history))}"
        return f"{statistics.fmean(r for r in rounds if r is not None):.1f}"

    def parameters_to(self, target: float) -> str:
        """Mean parameters sent, up and down, to the target: Fed-ET's C_acc(x); `> mean` if a seed did not reach it."""
        totals = [
            _parameters_sent(run, None if r is None else r.round)
            for run, r in zip(self.runs, self.reached(target), strict=True)
        ]
        text = f"{statistics.fmean(totals):.3g}"
        return f"> {text}" if None in self.reached(target) else text


@dataclass(frozen=True)
class Difference:
    """A mean difference over paired seeds, and its standard error; none for a single seed."""

    mean: float
    error: float | None

    @classmethod
    def paired(cls, ours: Sequence[float], theirs: Sequence[float]) -> Difference:
        each = [a - b for a, b in zip(ours, theirs, strict=True)]
        error = statistics.stdev(each) / math.sqrt(len(each)) if len(each) > 1 else None
        return cls(statistics.fmean(each), error)

    @property
    def clear(self) -> bool:
        """Whether it is more than two standard errors from zero."""
        return self.error is not None and abs(self.mean) > 2 * self.error

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
