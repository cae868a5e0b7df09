"""Statistics of an algorithm's runs: over seeds, and up to a target accuracy."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fedfuse.records.record import RoundRecord


class WithHistory(Protocol):
    """A run in memory or on disk, with at least one round."""

    @property
    def history(self) -> Sequence[RoundRecord]: ...


@dataclass(frozen=True, repr=False)
class Row:
    """The runs of one algorithm, one per seed."""

    algorithm: str
    runs: Sequence[WithHistory]

    @property
    def name(self) -> str:
        """The algorithm without its settings."""
        return self.algorithm.partition("(")[0].strip()

    @property
    def best(self) -> list[float]:
        return [best_round(run).test_accuracy for run in self.runs]

    @property
    def final(self) -> list[float]:
        return [run.history[-1].test_accuracy for run in self.runs]

    @property
    def mean_over_rounds(self) -> list[float]:
        return [statistics.fmean(r.test_accuracy for r in run.history) for run in self.runs]

    def mean_by_round(self) -> list[float]:
        """Return the mean test accuracy over seeds after each round that all runs have."""
        histories = [run.history[:] for run in self.runs]
        return [statistics.fmean(r.test_accuracy for r in records) for records in zip(*histories, strict=False)]

    @property
    def seconds(self) -> float:
        return sum(sum(r.seconds.values()) for run in self.runs for r in run.history)

    def __repr__(self) -> str:
        return f"Row({self.algorithm!r}, {len(self.runs)} runs, final accuracy {spread(self.final)} %)"

    def reached(self, target: float) -> list[RoundRecord | None]:
        """Return for each seed the first round at or above the target, or None."""
        return [next((r for r in run.history if r.test_accuracy >= target), None) for run in self.runs]

    def rounds_to(self, target: float) -> str:
        """Mean number of rounds to the target over seeds; `> rounds` if a seed did not reach it."""
        rounds = [None if r is None else r.round for r in self.reached(target)]
        if None in rounds:
            return f"> {len(self.runs[0].history)}"
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


def best_round(run: WithHistory) -> RoundRecord:
    return max(run.history, key=lambda r: r.test_accuracy)


def _parameters_sent(run: WithHistory, until: int | None) -> int:
    rounds = [r for r in run.history if until is None or r.round <= until]
    return sum(r.params_up + r.params_down for r in rounds)


def spread(values: Sequence[float]) -> str:
    """Return the mean and standard deviation over seeds as text, in percent."""
    mean = f"{100 * statistics.fmean(values):.2f}"
    return f"{mean} ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else mean


def deviation(values: Sequence[float]) -> float:
    """Return the sample standard deviation; 0.0 for a single value."""
    return statistics.stdev(values) if len(values) > 1 else 0.0
