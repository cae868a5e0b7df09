"""Progress of `fuse`: a bar for each teacher and for the distillation on a terminal, a line in a notebook."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from rich.console import Console
from rich.progress import Progress, TaskID
from torch import Tensor

from fedfuse.compute.batches import Batch
from fedfuse.notebook import LiveLine, in_notebook
from fedfuse.predict import Pool


class Bars:
    """Bars on standard error, or a line in a notebook, removed at the end. By default, only on a terminal or there."""

    def __init__(self, show: bool | None) -> None:
        self._line = LiveLine() if show is not False and in_notebook() else None
        on = show if show is not None else sys.stderr is not None and sys.stderr.isatty()
        console = Console(stderr=True, force_terminal=show or None)
        self._bars = Progress(console=console, transient=True, disable=not on or self._line is not None)

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()
        if self._line is not None:
            self._line.show("", now=True)

    def bar(self, title: str, total: int) -> TaskID:
        return self._bars.add_task(title, total=total)

    def advance(self, bar: TaskID, by: int) -> None:
        self._bars.advance(bar, by)
        if self._line is not None:
            task = next(task for task in self._bars.tasks if task.id == bar)
            self._line.show(f"{task.description}: {task.completed:.0f} of {task.total:.0f}")


@dataclass(frozen=True)
class _PoolWithBar:
    """A pool that advances a bar with each batch that is read."""

    pool: Pool
    bars: Bars
    bar: TaskID
    per_batch: bool

    def __len__(self) -> int:
        return len(self.pool)

    def batch(self, index: Tensor) -> Batch:
        self.advance(len(index))
        return self.pool.batch(index)

    def advance(self, rows: int) -> None:
        self.bars.advance(self.bar, 1 if self.per_batch else rows)

    def lengths(self, rows: Tensor) -> Tensor | None:
        row_lengths: Tensor | None = getattr(self.pool, "lengths", lambda rows: None)(rows)
        return row_lengths


def with_bar(pool: Pool, bars: Bars, title: str, steps: int | None = None, rows: int = 0) -> Pool:
    """Return the pool with a bar: of `steps` batches, or of `rows`."""
    return _PoolWithBar(pool, bars, bars.bar(title, rows if steps is None else steps), steps is not None)
