"""Progress: the time left ignores the first round, and from Python it is shown where someone can see it."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from rich.console import Console

import fedfuse
from fedfuse import notebook
from fedfuse.fusion import AdamCosine
from fedfuse.records.record import RoundRecord
from fedfuse.runs.display import Display
from fedfuse.runs.progress import InNotebook, Lines, Live, TimeLeft, from_python
from tests.faults.disk import tiny

RECORD = RoundRecord(1, [0, 1], 0.5, 1.0, {}, 1, 1, 4, 4, {"local": 100.0})


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_time_left_ignores_the_first_round() -> None:
    """It took 100 s, those after it 2 s and 4 s."""
    clock = Clock()
    left = TimeLeft(5, clock)
    seen = []
    for now in (100.0, 102.0, 106.0, 109.0, 112.0):
        clock.now = now
        seen.append(left.round_ends())
    assert seen == [None, 6.0, 6.0, 3.0, 0.0]


def played(display: Display, clock: Clock) -> None:
    """Four rounds: the first takes 100 s, the others a minute."""
    display.begin("digits", 4, [])
    for number, now in ((1, 100.0), (2, 160.0), (3, 220.0)):
        display.round_begins(number, [0, 1])
        display.answered(0)
        clock.now = now
        display.round_ends(replace(RECORD, round=number))


def test_lines_have_no_time_left_after_the_first_round() -> None:
    clock, text = Clock(), io.StringIO()
    played(Lines(Console(file=text, width=200), clock), clock)
    ends = [line.partition("100.0 s")[2].strip() for line in text.getvalue().splitlines()[1:]]
    assert ends == ["", "left 120 s", "left 60 s"]


def test_a_long_time_left_is_not_told_in_seconds() -> None:
    clock, text = Clock(), io.StringIO()
    lines = Lines(Console(file=text, width=200), clock)
    lines.begin("cifar10", 600, [])
    for number in (1, 2):
        clock.now = 900.0 * number
        lines.round_ends(replace(RECORD, round=number))
    assert text.getvalue().rstrip().endswith("left 6 d 5 h")  # 598 rounds of 15 minutes


def test_bars_have_a_time_left_for_rounds_of_a_minute() -> None:
    clock = Clock()
    live = Live(Console(file=io.StringIO()), clock)
    played(live, clock)
    assert live._bars.tasks[live._rounds].time_remaining == 60


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_from_python_a_terminal_has_bars_and_a_pipe_has_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    fedfuse.run(tiny(rounds=1), tmp_path / "shown")
    assert "experiment · fedavgm" in terminal.getvalue()
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    fedfuse.run(tiny(rounds=1), tmp_path / "off", progress=False)
    monkeypatch.setattr(sys, "stderr", pipe := io.StringIO())
    fedfuse.run(tiny(rounds=1), tmp_path / "piped")
    assert terminal.getvalue() == pipe.getvalue() == "".join(capfd.readouterr())


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the output of a notebook's cell shows, one text after the other."""
    texts: list[str] = []

    class Handle:
        def update(self, content: dict[str, str], raw: bool) -> None:
            texts.append(content["text/plain"])

    def display(content: dict[str, str], raw: bool, display_id: bool) -> Any:
        texts.append(content["text/plain"])
        return Handle()

    module = ModuleType("IPython.display")
    module.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(notebook, "OFTEN", 0.0)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    return texts


def test_a_notebook_has_a_line(cell: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    shown = InNotebook(clock)
    shown.run_of_many(2, 3)
    played(shown, clock)
    shown.warn("client 1 <left>")
    shown.end(Path("runs/a"), [RECORD])
    assert cell[0] == "run 2/3 · digits · round 0/4"
    assert "run 2/3 · digits · round 1/4 · clients 1/2 · accuracy 0.5000" in cell
    assert cell[-2:] == [
        "run 2/3 · digits · round 3/4 · accuracy 0.5000 · left 60 s",
        "run 2/3 · digits · 1 rounds · accuracy 0.5000 · runs/a",
    ]
    assert capsys.readouterr().err == "warning: client 1 <left>\n"


def test_the_display_of_the_caller_is_used_as_it_is() -> None:
    own = Lines(Console(file=io.StringIO()))
    with from_python(own, True) as shown:
        assert shown is own


def test_run_and_fuse_find_the_notebook(cell: list[str], tmp_path: Path) -> None:
    fedfuse.run(tiny(rounds=1), tmp_path / "run")
    assert cell[-1].startswith("experiment · fedavgm · 1 rounds · accuracy 0.")
    cell.clear()
    fedfuse.run(tiny(rounds=1), tmp_path / "off", progress=False)
    assert cell == []
    net, x = torch.nn.Linear(4, 3), torch.randn(16, 4)
    fedfuse.fuse(net, net, x, distiller=AdamCosine(steps=2, batch_size=8))
    assert cell[0] == "teacher 1: 16 of 16"
    assert cell[-2:] == ["distilling: 2 of 2", ""]
