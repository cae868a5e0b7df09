"""Streams that are closed or speak only ASCII, and signals that end a run, at the first moment and later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedfuse.records import events
from fedfuse.terminal import streams
from tests.command_line import ENOUGH, SMALL, CommandLine, CommandResult, environment, models_of

FEDFUSE = str(Path(sys.executable).parent / "fedfuse")
# Data that is made up: digits would import scikit-learn.
QUICK = (
    *SMALL,
    "-r",
    "1",
    "--workers",
    "1",
    "--no-report",
    "--set",
    "data.source=synthetic",
    "--set",
    "data.examples=600",
)


@pytest.fixture(scope="module")
def as_usual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The models of the run with streams."""
    run = tmp_path_factory.mktemp("usual") / "run"
    assert CommandLine().here(*QUICK, "--out", run).code == 0
    return models_of(run)


def test_a_run_without_any_stream_is_a_run(as_usual: dict[str, str], tmp_path: Path) -> None:
    command = f"{FEDFUSE} {' '.join(QUICK)} --out {tmp_path}/run >&- 2>&- <&-"
    process = subprocess.run(["sh", "-c", command], timeout=ENOUGH, env=environment({}), check=False)
    assert process.returncode == 0
    # No file took the place of a closed stream, so nothing was printed into one.
    assert models_of(tmp_path / "run") == as_usual


def test_a_run_without_output_is_a_run(cli: CommandLine, as_usual: dict[str, str], tmp_path: Path) -> None:
    def close_output() -> None:
        os.close(1)
        sys.stdout = None  # type: ignore[assignment]  # as Python starts without an output

    with cli.forked(*QUICK, "--out", tmp_path / "run", before=close_output) as process:
        assert process.wait() == CommandResult(0, "", "")
    assert models_of(tmp_path / "run") == as_usual


def test_an_output_of_ascii_gets_ascii(cli: CommandLine, tmp_path: Path) -> None:
    def ascii_output() -> None:
        sys.stdout = open(1, "w", encoding="ascii", closefd=False)  # noqa: SIM115 - as with PYTHONIOENCODING=ascii

    with cli.forked(*QUICK, "--out", tmp_path / "run", before=ascii_output) as process:
        result = process.wait()
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("small - fedavg - 1 rounds\n")
    assert result.out.isascii()


def test_what_an_encoding_lacks_is_written_otherwise() -> None:
    streams.prepare()
    assert "5 × 5 · naïve → ± … 漢".encode("ascii", "fedfuse") == b"5 x 5 - naive -> +- ... ?"


@pytest.mark.parametrize(("name", "workers"), [("SIGINT", "2"), ("SIGTERM", "1"), ("SIGHUP", "1")])
def test_a_signal_ends_a_run_with_a_word(cli: CommandLine, name: str, workers: str, tmp_path: Path) -> None:
    """To the whole group, as a terminal sends it: no worker may answer for itself."""
    number, run = signal.Signals[name], tmp_path / "run"
    with cli.forked(*SMALL, "-r", "5000", "--workers", workers, "--out", run) as process:
        end = time.monotonic() + ENOUGH
        while not (run / "rounds.jsonl").exists() and time.monotonic() < end:
            time.sleep(0.01)
        os.killpg(process.pid, number)
        result = process.wait()
    assert result.code == 128 + number
    assert result.err.splitlines()[-1] == streams.STOPPED
    assert "Traceback" not in result.text
    assert "KeyboardInterrupt" not in result.text
    last = events.read(run / "events.jsonl")[-1]
    assert (last.kind, last.text) == ("stopped", "keyboard interrupt" if name == "SIGINT" else name)


def handles(process: subprocess.Popen[str], number: signal.Signals) -> bool:
    """Whether the process has a handler of this signal."""
    status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    caught = next(line for line in status if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="/proc tells when the program's handlers are set")
@pytest.mark.parametrize("delay", [0.0, 0.5, 2.0])
def test_ctrl_c_while_it_starts_prints_no_traceback(cli: CommandLine, delay: float, tmp_path: Path) -> None:
    """From the moment that fedfuse's own code runs: before it, Python itself is starting."""
    with cli.started(*SMALL, "-r", "5000", "--workers", "2", "--out", tmp_path / "run") as process:
        end = time.monotonic() + ENOUGH
        while not handles(process, signal.SIGTERM) and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGINT)
        result, _ = process.communicate(timeout=ENOUGH)
    assert process.returncode == 128 + signal.SIGINT
    assert "Traceback" not in result
    assert streams.STOPPED in result


def test_an_interrupt_before_a_command_begins_is_no_abort(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("typer.core.TyperGroup.make_context", interrupted)
    result = cli.here("list")
    assert result.code == 128 + signal.SIGINT
    assert streams.STOPPED in result.err


def test_imports_are_left_at_once_also_inside_a_command() -> None:
    """Commands import torch after the handlers of a run are set: they are replaced meanwhile, and come back."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        streams.stop_like_ctrl_c()
        of_a_run = signal.getsignal(signal.SIGTERM)
        with streams.leaving_at_once():
            assert signal.getsignal(signal.SIGTERM) is streams._leave
        assert signal.getsignal(signal.SIGTERM) is of_a_run is streams._interrupt
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_that_is_ignored_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """`nohup fedfuse run` goes on when the terminal is closed."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        streams.stop_like_ctrl_c()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
