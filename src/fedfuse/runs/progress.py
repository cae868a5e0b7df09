"""The progress of a run: live bars on a terminal, a line in a notebook, plain lines when piped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from fedfuse.notebook import LiveLine, in_notebook
from fedfuse.records.amounts import duration
from fedfuse.records.record import RoundRecord
from fedfuse.runs.display import Display, Silent

ALL = 1e9  # seconds: the speed of rounds is that of all of them, however long they take


class TimeLeft:
    """The time that the remaining rounds will take, from those after the first, which also starts workers."""

    def __init__(self, rounds: int, clock: Callable[[], float]) -> None:
        self._left, self._clock = rounds, clock
        self._first: float | None = None
        self._later = 0

    def round_ends(self) -> float | None:
        """Return the seconds that are left; None after the first round, which tells nothing about the others."""
        self._left -= 1
        if self._first is None:
            self._first = self._clock()
            return None if self._left else 0.0
        self._later += 1
        return (self._clock() - self._first) / self._later * self._left


class Lines(Silent):
    """A line per round, for pipes and log files."""

    def __init__(self, console: Console, clock: Callable[[], float] = perf_counter) -> None:
        self.console, self.rounds = console, 0
        self._clock, self._left = clock, TimeLeft(0, clock)
        self._stages: set[str] = set()
        self._place = ""

    def run_of_many(self, number: int, total: int) -> None:
        self._place = f"run {number}/{total} · " if total > 1 else ""

    def preparing(self, what: str, fraction: float) -> None:
        if what not in self._stages:
            self._stages.add(what)
            self._line(what)

    def begin(self, title: str, rounds: int, history: Sequence[RoundRecord]) -> None:
        self.rounds, self._left = rounds, TimeLeft(rounds - len(history), self._clock)
        self._line(
            f"{self._place}{title} · {rounds} rounds" + (f" · {len(history)} already finished" if history else "")
        )

    def round_ends(self, record: RoundRecord) -> None:
        for problem in record.problems():
            self.warn(problem)
        left = self._left.round_ends()
        self._line(
            f"round {record.round:>{len(str(self.rounds))}}/{self.rounds}  {_scores(record)}  "
            f"clients {len(record.cohort) - len(record.rejected)}/{len(record.cohort)}  "
            f"{sum(record.seconds.values()):.1f} s" + ("" if left is None else f"  left {_time(left)}")
        )

    def warn(self, message: str) -> None:
        self._line(f"warning: {message}")

    def _line(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 300 else duration(seconds)


def _scores(record: RoundRecord) -> str:
    return _accuracy(record) + ("" if record.test_accuracy is None else f"  loss {record.test_loss:.4f}")


def _accuracy(record: RoundRecord) -> str:
    return "not evaluated" if record.test_accuracy is None else f"accuracy {record.test_accuracy:.4f}"


class Warnings(Silent):
    """Nothing but warnings."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def round_ends(self, record: RoundRecord) -> None:
        for problem in record.problems():
            self.warn(problem)

    def warn(self, message: str) -> None:
        self.console.print(f"warning: {message}", highlight=False, markup=False, soft_wrap=True)


class _Accuracy(ProgressColumn):
    """The accuracy after the last round that was evaluated, once there is one."""

    def render(self, task: Task) -> Text:
        return Text(task.fields.get("accuracy") or "", style="bold green")


class Live(Silent):
    """Progress bars: the runs if there are several, the rounds, and the clients of this round."""

    def __init__(self, console: Console, clock: Callable[[], float] = perf_counter) -> None:
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
            get_time=clock,
            speed_estimate_period=ALL,  # by default that of the last 30 s: a longer round would have no time left
        )
        self._runs = self._bars.add_task("runs", total=1, visible=False)
        self._rounds = self._bars.add_task("rounds", total=1, visible=False)
        self._clients = self._bars.add_task("clients", total=1, visible=False)
        self._preparing = self._bars.add_task("preparing", total=100, visible=False)
        # Where some rounds are not evaluated, the number needs its round.
        self._accuracy, self._thinned = "", False

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
        self._accuracy, self._thinned = "", False
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


class InNotebook(Silent):
    """One line in the output of a cell."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._line, self._clock, self._left = LiveLine(), clock, TimeLeft(0, clock)
        self._place = self._title = self._result = ""
        self._rounds = self._round = self._clients = self._answers = 0

    def run_of_many(self, number: int, total: int) -> None:
        self._place = f"run {number}/{total} · " if total > 1 else ""

    def preparing(self, what: str, fraction: float) -> None:
        self._line.show(f"{what} {100 * fraction:.0f} %")

    def begin(self, title: str, rounds: int, history: Sequence[RoundRecord]) -> None:
        self._title, self._rounds, self._round = title, rounds, len(history)
        self._result, self._left = "", TimeLeft(rounds - len(history), self._clock)
        self._show(now=True)

    def round_begins(self, number: int, cohort: Sequence[int]) -> None:
        self._clients, self._answers = len(cohort), 0
        self._show()

    def answered(self, client: int) -> None:
        self._answers += 1
        self._show()

    def round_ends(self, record: RoundRecord) -> None:
        for problem in record.problems():
            self.warn(problem)
        left = self._left.round_ends()
        self._round, self._clients = record.round, 0
        self._result = f" · {_accuracy(record)}" + (f" · left {_time(left)}" if left else "")
        self._show()

    def warn(self, message: str) -> None:
        print(f"warning: {message}", file=sys.stderr)

    def end(self, path: Path, history: Sequence[RoundRecord]) -> None:
        accuracy = f" · {_accuracy(history[-1])}" if history else ""
        self._line.show(f"{self._place}{self._title} · {len(history)} rounds{accuracy} · {path}", now=True)

    def _show(self, *, now: bool = False) -> None:
        clients = f" · clients {self._answers}/{self._clients}" if self._clients else ""
        self._line.show(
            f"{self._place}{self._title} · round {self._round}/{self._rounds}{clients}{self._result}", now=now
        )


@contextmanager
def from_python(display: Display | None, progress: bool) -> Iterator[Display]:
    """Yield the caller's display, or with `progress` one for a notebook or a terminal; elsewhere a silent one."""
    if display is not None or not progress:
        yield display or Silent()
    elif in_notebook():
        yield InNotebook()
    elif sys.stderr is not None and sys.stderr.isatty():
        with Live(Console(stderr=True)) as live:
            yield live
    else:
        yield Silent()
