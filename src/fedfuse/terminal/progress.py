"""The progress of a run: live bars on a terminal, plain lines when piped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from fedfuse.records.record import RoundRecord
from fedfuse.runs.display import Silent


class Lines(Silent):
    """A line per round, for pipes and log files."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.rounds, self.finished, self.left, self.started = 0, 0, 0, perf_counter()
        self._stages: set[str] = set()
        self._place = ""

    def run_of_many(self, number: int, total: int) -> None:
        self._place = f"run {number}/{total} · " if total > 1 else ""

    def preparing(self, what: str, fraction: float) -> None:
        if what not in self._stages:
            self._stages.add(what)
            self._line(what)

    def begin(self, title: str, rounds: int, history: Sequence[RoundRecord]) -> None:
        self.rounds, self.finished, self.left = rounds, 0, rounds - len(history)
        self.started = perf_counter()
        self._line(
            f"{self._place}{title} · {rounds} rounds" + (f" · {len(history)} already finished" if history else "")
        )

    def round_ends(self, record: RoundRecord) -> None:
        for problem in record.problems():
            self.warn(problem)
        self.finished, self.left = self.finished + 1, self.left - 1
        remaining = (perf_counter() - self.started) / self.finished * self.left
        self._line(
            f"round {record.round:>{len(str(self.rounds))}}/{self.rounds}  {_scores(record)}  "
            f"clients {len(record.cohort) - len(record.rejected)}/{len(record.cohort)}  "
            f"{sum(record.seconds.values()):.1f} s  left {remaining:.0f} s"
        )

    def warn(self, message: str) -> None:
        self._line(f"warning: {message}")

    def _line(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def _scores(record: RoundRecord) -> str:
    if record.test_accuracy is None:
        return "not evaluated"
    return f"accuracy {record.test_accuracy:.4f}  loss {record.test_loss:.4f}"


class _Accuracy(ProgressColumn):
    """The accuracy after the last round that was evaluated, once there is one."""

    def render(self, task: Task) -> Text:
        return Text(task.fields.get("accuracy") or "", style="bold green")


class Live(Silent):
    """Progress bars: the runs if there are several, the rounds, and the clients of this round."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            TextColumn("{task.completed:.0f}/{task.total:.0f}", style="dim"),
            _Accuracy(),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=console,
            transient=True,
        )
        self._runs = self._bars.add_task("runs", total=1, visible=False)
        self._rounds = self._bars.add_task("rounds", total=1, visible=False)
        self._clients = self._bars.add_task("clients", total=1, visible=False)
        self._preparing = self._bars.add_task("preparing", total=100, visible=False)
        self._accuracy = ""
        self._thinned = False  # whether some rounds are not evaluated, so that an accuracy needs its round

    def __enter__(self) -> Live:
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def run_of_many(self, number: int, total: int) -> None:
        self._bars.update(self._runs, total=total, completed=number - 1, visible=total > 1)

    def preparing(self, what: str, fraction: float) -> None:
        self._bars.update(self._preparing, description=what, completed=100 * fraction, visible=fraction < 1)

    def begin(self, title: str, rounds: int, history: Sequence[RoundRecord]) -> None:
        self._accuracy, self._thinned = "", not all(record.evaluated for record in history)
        self._bars.reset(
            self._rounds, total=rounds, completed=len(history), visible=True, description=title, accuracy=""
        )

    def round_begins(self, number: int, cohort: Sequence[int]) -> None:
        self._bars.reset(
            self._clients, total=len(cohort), visible=True, description=f"  round {number}, clients", accuracy=None
        )

    def answered(self, client: int) -> None:
        self._bars.advance(self._clients)

    def round_ends(self, record: RoundRecord) -> None:
        for problem in record.problems():
            self.warn(problem)
        if record.test_accuracy is not None:
            self._accuracy = f"accuracy {record.test_accuracy:.4f}"
            if self._thinned:
                self._accuracy += f" after round {record.round}"
        else:
            self._thinned = True
        self._bars.update(self._rounds, advance=1, accuracy=self._accuracy)

    def warn(self, message: str) -> None:
        self.console.print(Text("warning ", style="yellow").append(message, style="default"), highlight=False)

    def end(self, path: Path, history: Sequence[RoundRecord]) -> None:
        self._bars.update(self._clients, visible=False)
