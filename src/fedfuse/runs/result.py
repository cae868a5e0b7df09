"""The results of `run` and `compare`, with what a notebook shows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfuse.notebook import curve, table
from fedfuse.records.record import RoundRecord, accuracies
from fedfuse.records.statistics import Difference, Row, best_round, spread
from fedfuse.runs.plot import plot_accuracies
from fedfuse.runs.rows import frame, round_facts
from fedfuse.types import Snapshot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


@dataclass(frozen=True, repr=False)
class Run:
    """A finished run: its directory, its rounds, and the server's models."""

    path: Path
    history: Sequence[RoundRecord]
    models: Mapping[str, Snapshot]

    @property
    def best(self) -> RoundRecord:
        """The round with the highest test accuracy, of those that were evaluated."""
        return self.history[best_round(self) - 1]

    @property
    def final(self) -> RoundRecord:
        return self.history[-1]

    def to_pandas(self) -> DataFrame:
        """Return a DataFrame with a row per round: accuracy, loss, clients, what was sent, seconds."""
        return frame([round_facts(record) for record in self.history]).set_index("round")

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the test accuracy by round with matplotlib, on `axes` or a new figure, and return the axes."""
        return plot_accuracies({self.path.name: [self]}, axes)

    def report(self, out: str | Path | None = None, *, target: float | None = None) -> Path:
        """Write the HTML report of this run, by default to `report.html` in its directory, and return its path."""
        return _report(self.path, out, target)

    def __repr__(self) -> str:
        if not self.history:
            return f"Run({str(self.path)!r}, no rounds)"
        row, best = Row("", [self]), best_round(self)
        return (
            f"Run({str(self.path)!r}, {len(self.history)} rounds, accuracy {row.final[0]:.4f}, "
            f"best {row.best[0]:.4f} in round {best})"
        )

    def _repr_html_(self) -> str:
        if not self.history:
            return table(str(self.path), (), [("rounds", 0)])
        rows = [(arch, f"{100 * score.accuracy:.2f}", f"{score.loss:.4f}") for arch, score in self.final.models.items()]
        by_round, best = accuracies(self.history), best_round(self)
        title = f"{self.path}: {len(self.history)} rounds, best {100 * by_round[best]:.2f} % in round {best}"
        return table(title, ("model", "test accuracy %", "test loss"), rows) + curve({"": list(by_round.values())})


# A list, because `compare` has always returned one; nothing of `list` is changed but how it is shown.
class Comparison(list[Row]):
    """A row per algorithm, in the order given: a list, with the directory of all runs."""

    def __init__(self, rows: Sequence[Row], path: Path) -> None:
        super().__init__(rows)
        self.path = path

    def to_pandas(self) -> DataFrame:
        """Return a DataFrame with a row per algorithm, seed and round."""
        return frame(
            [
                {"algorithm": row.algorithm, "run": _name(run, number), **round_facts(record)}
                for row in self
                for number, run in enumerate(row.runs)
                for record in run.history
            ]
        )

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the test accuracy by round, the mean over seeds, with matplotlib; and return the axes."""
        return plot_accuracies({row.algorithm: row.runs for row in self}, axes)

    def report(self, out: str | Path | None = None, *, target: float | None = None) -> Path:
        """Write the HTML report of all runs, by default to `report.html` in their directory, and return its path."""
        return _report(self.path, out, target)

    def __repr__(self) -> str:
        results = ", ".join(f"{row.algorithm}: {spread(row.final)} %" for row in self)
        return f"Comparison({str(self.path)!r}, {results})"

    def _repr_html_(self) -> str:
        rows = [
            (row.algorithm, spread(row.best), spread(row.final), spread(row.mean_over_rounds), self._gain(row))
            for row in self
        ]
        header = ("algorithm", "best accuracy %", "final accuracy %", "mean over rounds %", "points above the first")
        return table(str(self.path), header, rows) + curve({row.algorithm: row.mean_by_round() for row in self})

    def _gain(self, row: Row) -> str:
        return "" if row is self[0] else Difference.paired(row.mean_over_rounds, self[0].mean_over_rounds).points()


def _name(run: Any, number: int) -> str:
    return run.path.name if isinstance(run, Run) else str(number)


def _report(path: Path, out: str | Path | None, target: float | None) -> Path:
    import fedfuse  # at the call, by its public name: reports read runs, so their room is above this one

    return fedfuse.report(path, out=out, target=target)
