"""Trackers hold each round once, change no bit of a run, say nothing, and cannot end it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

import fedfuse
from fedfuse.config.experiment import Experiment
from fedfuse.records import events, record
from fedfuse.records.observer import RunInfo
from fedfuse.records.record import RoundRecord
from fedfuse.tracking import TRACKERS, is_installed
from fedfuse.tracking.scalars import Parameters
from fedfuse.tracking.to_mlflow import QUIET
from fedfuse.tracking.tracker import defaults
from tests.command_line import ROOT, CommandLine, models_of
from tests.tracking.read_back import READERS

SMALL = ROOT / "tests" / "small.toml"


@pytest.fixture(autouse=True)
def _no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
        if name != "WANDB_SERVICE":  # the library's own, once it runs
            monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all: MLflow's store lies beside the runs, and takes seconds to make."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def plain(runs: Path) -> Path:
    return fedfuse.run(experiment(), runs / "plain").path


def needs(name: str) -> None:
    """Found and not imported: an import would come before the one that keeps the library quiet."""
    if find_spec(name) is None:
        pytest.skip(f"the library of this tracker is not installed: fedfuse[{name}]")


def experiment(*trackers: str) -> Experiment:
    return fedfuse.load(SMALL, {"run.rounds": 3, "run.workers": 1, "run.track": list(trackers)})


class Stop:
    """An observer that ends a run after a round."""

    def __init__(self, after: int) -> None:
        self.after = after

    def begin(self, run: RunInfo, history: Sequence[RoundRecord]) -> None: ...

    def round(self, record: RoundRecord) -> None:
        if record.round == self.after:
            raise RuntimeError("enough")

    def end(self, history: Sequence[RoundRecord]) -> None: ...


def stopped(run: Path, *trackers: str, after: int = 2) -> Path:
    with pytest.raises(RuntimeError, match="enough"):
        fedfuse.run(experiment(*trackers), run, observers=[Stop(after)])
    return run


def warnings(run: Path) -> list[str]:
    return [event.text for event in events.read(run / "events.jsonl") if event.kind == "warning"]


def recorded(run: Path) -> list[tuple[int, float]]:
    return [(r.round, pytest.approx(r.test_accuracy)) for r in record.read(run / "rounds.jsonl")]


@pytest.mark.parametrize("name", TRACKERS)
def test_a_run_that_is_stopped_and_resumed(
    name: str, runs: Path, plain: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    needs(name)
    capfd.readouterr()
    run = stopped(runs / f"with-{name}", name)
    for _ in range(2):  # the second time nothing is left to do
        fedfuse.run(experiment(name), run, resume=True)
    assert capfd.readouterr() == ("", "")
    assert warnings(run) == []
    assert not {*os.environ} & {"WANDB_MODE", "WANDB_ERROR_REPORTING", *QUIET}, "a caller's own runs are the caller's"
    held = READERS[name](run)
    assert held.curve == recorded(run)
    assert {"validation/accuracy", "test/loss", "models/mlp:16:bn/accuracy", "seconds/local"} <= held.names
    assert held.settings["algorithm.name"] == "fedavg"
    assert float(held.settings["local.lr"]) == 0.05
    assert models_of(run) == models_of(plain)


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_tracker_that_is_added_later_is_told_all(name: str, runs: Path) -> None:
    needs(name)
    run = stopped(runs / f"later-{name}")
    fedfuse.run(experiment(name), run, resume=True)
    assert READERS[name](run).curve == recorded(run)
    assert not warnings(run)


def test_what_somebody_deleted_is_told_again(tmp_path: Path) -> None:
    needs("tensorboard")
    run = stopped(tmp_path / "run", "tensorboard")
    shutil.rmtree(run / "tensorboard")
    fedfuse.run(experiment("tensorboard"), run, resume=True)
    assert READERS["tensorboard"](run).curve == recorded(run)


class Failing:
    """A tracker that fails at one step, and counts how often it was asked."""

    buffers = False

    def __init__(self, at: str, error: BaseException) -> None:
        self.at, self.error, self.asked = at, error, 0

    def _step(self, name: str) -> None:
        if name == self.at:
            self.asked += 1
            raise self.error

    def open(self, path: Path, known: str | None, parameters: Parameters) -> str:
        self._step("open")
        return "one"

    def log(self, round: int, scalars: Mapping[str, float]) -> None:
        self._step("log")

    def close(self, finished: bool) -> None:
        self._step("close")


@pytest.mark.parametrize("error", [OSError("no space left on device"), SystemExit(3)], ids=["disk", "exit"])
@pytest.mark.parametrize("at", ["open", "log", "close"])
def test_a_tracker_that_fails_is_warned_about_once(
    at: str, error: BaseException, tmp_path: Path, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = Failing(at, error)
    monkeypatch.setitem(TRACKERS, "tensorboard", lambda: tracker)  # type: ignore[arg-type]
    run = fedfuse.run(experiment("tensorboard"), tmp_path / "run")
    assert len(run.history) == 3
    assert tracker.asked == 1
    assert warnings(run.path) == [f"tensorboard failed and is skipped from now on: {type(error).__name__}: {error}"]
    assert models_of(run.path) == models_of(plain)


@pytest.mark.parametrize("name", TRACKERS)
def test_a_library_that_is_missing_ends_a_run_before_it_begins(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(fedfuse.FedfuseError, match=rf"run\.track = '{name}': .*pip install \"fedfuse\[{name}\]\""):
        fedfuse.run(experiment(name), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_of_logs_is_not_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "offline_logs").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not is_installed("offline_logs")


def test_a_library_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb.py").write_text("raise ZeroDivisionError('at import')")
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (warning,) = warnings(fedfuse.run(experiment("wandb"), tmp_path / "run").path)
    assert warning.endswith("ZeroDivisionError: at import")


def test_a_round_that_is_done_again_is_not_told_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest checkpoint is lost: its round is done again, and the tracker had it."""
    calls: list[int] = []

    class Notes(Failing):
        def log(self, round: int, scalars: Mapping[str, float]) -> None:
            calls.append(round)

    monkeypatch.setitem(TRACKERS, "mlflow", lambda: Notes("never", OSError()))  # type: ignore[arg-type]
    run = stopped(tmp_path / "run", "mlflow")
    newest = max((run / "checkpoint").iterdir())
    newest.write_bytes(b"damaged")
    fedfuse.run(experiment("mlflow"), run, resume=True)
    assert calls == [1, 2, 3]


def test_a_kill_costs_a_tracker_that_buffers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was never closed, so nobody knows what it holds: a new run there has all rounds."""
    calls: list[tuple[str, int]] = []

    class Buffering(Failing):
        buffers = True
        id = "none yet"

        def open(self, path: Path, known: str | None, parameters: Parameters) -> str:
            self.id = known or f"new after {len(calls)}"
            return self.id

        def log(self, round: int, scalars: Mapping[str, float]) -> None:
            calls.append((self.id, round))

    monkeypatch.setitem(TRACKERS, "wandb", lambda: Buffering("close", OSError("killed")))  # type: ignore[arg-type]
    run = stopped(tmp_path / "run", "wandb")
    monkeypatch.setitem(TRACKERS, "wandb", lambda: Buffering("never", OSError()))  # type: ignore[arg-type]
    fedfuse.run(experiment("wandb"), run, resume=True)
    assert calls == [*(("new after 0", n) for n in (1, 2)), *(("new after 2", n) for n in (1, 2, 3))]


def test_the_option_beats_the_file(tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("tensorboard", "mlflow"):
        tracker = type(name, (Failing,), {"log": lambda self, round, scalars, name=name: calls.append(name)})
        monkeypatch.setitem(TRACKERS, name, lambda tracker=tracker: tracker("never", OSError()))  # type: ignore[arg-type]
    file = tmp_path / "mine.toml"
    file.write_text(SMALL.read_text().replace("[run]", '[run]\ntrack = ["tensorboard"]\nworkers = 1'))
    assert cli.here("run", file, "-r", "1", "--out", tmp_path / "one").code == 0
    assert calls == ["tensorboard"]
    assert cli.here("run", file, "-r", "1", "--track", "mlflow", "--out", tmp_path / "two").code == 0
    assert calls == ["tensorboard", "mlflow"]
    both = ("--track", "mlflow", "--track", "tensorboard", "--track", "mlflow")
    assert cli.here("compare", file, "-a", "fedavg", "-r", "1", *both, "--out", tmp_path / "three").code == 0
    assert calls[2:] == ["mlflow", "tensorboard"]


def test_an_unknown_tracker_is_refused_before_the_run(tmp_path: Path, cli: CommandLine) -> None:
    result = cli.here("run", SMALL, "--track", "tensorbord", "--out", tmp_path / "run")
    assert result.code == 2
    assert "no tracker is called 'tensorbord'; did you mean tensorboard?" in " ".join(result.err.split())
    assert not (tmp_path / "run").exists()


def test_defaults_give_way_to_what_the_user_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.delenv("WANDB_SILENT", raising=False)
    with defaults({"WANDB_MODE": "offline", "WANDB_SILENT": "true"}):
        assert (os.environ["WANDB_MODE"], os.environ["WANDB_SILENT"]) == ("online", "true")
    assert os.environ["WANDB_MODE"] == "online"
    assert "WANDB_SILENT" not in os.environ
