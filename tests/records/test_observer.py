"""Observers of a run: what they are told, what they may do, and what of them may not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import fedfuse
from fedfuse.config.experiment import Experiment
from fedfuse.records import events
from fedfuse.records.observer import Guarded, RunInfo
from fedfuse.records.record import RoundRecord

SMALL = Path(__file__).parents[1] / "small.toml"


class Notes:
    def __init__(self, stop_after: int | None = None) -> None:
        self.seen: list[str] = []
        self.stop_after = stop_after

    def begin(self, run: RunInfo, history: Sequence[RoundRecord]) -> None:
        self.seen.append(f"begin after {len(history)}")

    def round(self, record: RoundRecord) -> None:
        self.seen.append(f"round {record.round}")
        if record.round == self.stop_after:
            raise RuntimeError("enough")

    def end(self, history: Sequence[RoundRecord]) -> None:
        self.seen.append(f"end after {len(history)}")


@pytest.fixture
def experiment() -> Experiment:
    return fedfuse.load(SMALL, {"run.rounds": 3, "run.workers": 1})


def test_an_observer_sees_every_round_and_may_end_the_run(experiment: Experiment, tmp_path: Path) -> None:
    first, second = Notes(stop_after=2), Notes()
    with pytest.raises(RuntimeError, match="enough"):
        fedfuse.run(experiment, tmp_path / "run", observers=[first])
    assert first.seen == ["begin after 0", "round 1", "round 2", "end after 2"]
    resumed = fedfuse.run(experiment, tmp_path / "run", resume=True, observers=[second])
    assert second.seen == ["begin after 2", "round 3", "end after 3"]
    whole = fedfuse.run(experiment, tmp_path / "whole")
    assert resumed.final.test_accuracy == whole.final.test_accuracy
    assert (tmp_path / "run/evaluation.json").read_bytes() == (tmp_path / "whole/evaluation.json").read_bytes()


def test_the_run_directory_says_what_happened_to_it(experiment: Experiment, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        fedfuse.run(experiment, tmp_path, observers=[Notes(stop_after=1)])
    for _ in range(2):  # the second time nothing is left to do
        fedfuse.run(experiment, tmp_path, resume=True)
    happened = [(event.kind, event.round, event.text) for event in events.read(tmp_path / "events.jsonl")]
    assert happened == [
        ("begun", 0, ""),
        ("stopped", 1, "RuntimeError: enough"),
        ("resumed", 1, ""),
        ("finished", 3, ""),
    ]


def test_a_guarded_observer_cannot_end_a_run(experiment: Experiment, tmp_path: Path) -> None:
    notes, warnings = Notes(stop_after=1), list[str]()
    run = fedfuse.run(experiment, tmp_path, observers=[Guarded("notes", notes, warnings.append)])
    assert len(run.history) == 3
    assert warnings == ["notes failed and is skipped from now on: RuntimeError: enough"]
    assert notes.seen == ["begin after 0", "round 1"]


def test_an_event_that_a_kill_cut_short_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    events.append(file, "begun", 0)
    with file.open("a") as half:
        half.write('{"at": "2026-')
    assert [event.kind for event in events.read(file)] == ["begun"]
