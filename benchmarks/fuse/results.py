"""The numbers of a benchmark: collected by model over the seeds, printed as a table, and kept in results.json."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean
from time import perf_counter

from rich.console import Console
from rich.table import Table

FILE = "results.json"


@dataclass
class Row:
    """A model: what it is, what it was trained on, and a number per seed."""

    model: str
    architecture: str
    parameters: int | None
    data: str
    steps: int | None
    accuracy: list[float] = field(default_factory=list)  # on the test data
    seconds: list[float] = field(default_factory=list)


class Results:
    """The rows of one data set."""

    def __init__(self, key: str, scale: str) -> None:
        self.key, self.scale = key, scale
        self.rows: dict[str, Row] = {}
        self._seconds, self._start = 0.0, perf_counter()

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measure the seconds of the next row."""
        start = perf_counter()
        yield
        self._seconds = perf_counter() - start

    def add(
        self, model: str, architecture: str, parameters: int | None, data: str, steps: int | None, share: float
    ) -> None:
        """Add the accuracy of one seed, with the seconds that were measured last."""
        row = self.rows.setdefault(model, Row(model, architecture, parameters, data, steps))
        row.accuracy.append(round(share, 5))
        row.seconds.append(round(self._seconds, 1))
        print(f"{model}: {100 * share:.2f} %, {self._seconds:.0f} s", file=sys.stderr, flush=True)
        self._seconds = 0.0

    def save(self, out: Path, seeds: int) -> None:
        """Put these results beside those of the other data sets in results.json."""
        out.mkdir(parents=True, exist_ok=True)
        path = out / FILE
        known = json.loads(path.read_text()) if path.exists() else {}
        known[self.key] = {
            "date": datetime.date.today().isoformat(),
            "commit": _commit(),
            "command": " ".join(["python", f"benchmarks/fuse/{Path(sys.argv[0]).name}", f"--seeds {seeds}"]),
            "scale": self.scale,
            "seeds": list(range(seeds)),
            "minutes": round((perf_counter() - self._start) / 60, 1),
            "rows": [asdict(row) for row in self.rows.values()],
        }
        path.write_text(json.dumps(known, indent=1) + "\n")

    def print(self, seeds: int) -> None:
        Console(width=130).print(self._table(seeds))

    def _table(self, seeds: int) -> Table:
        made = Table(title=self.key, caption=f"{self.scale}; {seeds} seeds")
        for column in ("model", "architecture", "data", "steps", "seconds", "test accuracy, %"):
            made.add_column(column)
        for row in self.rows.values():
            each = ", ".join(f"{100 * share:.2f}" for share in row.accuracy)
            steps = "" if row.steps is None else str(row.steps)
            cells = (f"{mean(row.seconds):.0f}", f"{100 * mean(row.accuracy):.2f} ({each})")
            made.add_row(row.model, row.architecture, row.data, steps, *cells)
        return made


def _commit() -> str:
    """Return the commit of the code that ran, or "unknown" outside of a repository."""
    asked = ["git", "rev-parse", "--short", "HEAD"]
    answer = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"
