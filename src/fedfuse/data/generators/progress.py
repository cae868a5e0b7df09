"""Show the progress of a generator's training: a live bar per stage on a terminal, a few lines when piped."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn

LINES = 5  # per stage, when piped


class Steps:
    """A `Watch` that prints the trainer's steps."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._tasks: dict[str, TaskID] = {}
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            TextColumn("{task.completed:.0f}/{task.total:.0f}", style="dim"),
            TextColumn("loss {task.fields[loss]:.4f}", style="bold green"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=console,
            transient=True,
        )

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.console.is_terminal:
            self._bars.stop()

    def __call__(self, stage: str, step: int, steps: int, loss: float) -> None:
        if self.console.is_terminal:
            task = self._tasks.get(stage)
            if task is None:
                task = self._tasks[stage] = self._bars.add_task(f"learning {stage}", total=steps, loss=loss)
            self._bars.update(task, completed=step, loss=loss)
        elif step == 1 or step * LINES // steps > (step - 1) * LINES // steps:
            width = len(str(steps))
            line = f"learning {stage:<7}  step {step:>{width}}/{steps}  loss {loss:.4f}"
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)
