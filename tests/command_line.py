"""The command line as a user has it: a process of its own, its exit code, what it printed, what it left."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from unittest import mock

from fedfuse import cli as program
from fedfuse.engines import workers

ROOT = Path(__file__).parent.parent
ENOUGH = 300  # seconds after which a command is stuck, on however busy a machine

SMALL = ("run", str(ROOT / "tests" / "small.toml"))


@dataclass(frozen=True)
class CommandResult:
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@dataclass(frozen=True)
class CommandLine:
    """`cli("run", "digits")` as a new process, which first imports torch for seconds.

    `cli.forked(...)` is a fork of this process: to be killed, limited or sent signals, without the imports.
    `cli.here(...)` is this process.
    """

    def __call__(self, *arguments: str | Path, env: Mapping[str, str] | None = None) -> CommandResult:
        process = subprocess.run(
            _command(arguments), capture_output=True, text=True, timeout=ENOUGH, env=environment(env)
        )
        return CommandResult(process.returncode, process.stdout, process.stderr)

    @contextmanager
    def forked(
        self, *arguments: str | Path, env: Mapping[str, str] | None = None, before: Callable[[], None] | None = None
    ) -> Iterator[Fork]:
        """The running fork, head of a group of its own, after `before()`. It does not outlive the block."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = os.fork()
            if child == 0:
                _become_the_program(arguments, env, before, out, err)
            process = Fork(child, out, err)
            try:
                yield process
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait()

    @contextmanager
    def started(self, *arguments: str | Path, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
        """The running process, head of a group of its own. It does not outlive the block; what it started may."""
        process = subprocess.Popen(
            _command(arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(env),
            start_new_session=True,
            preexec_fn=_as_in_a_terminal,
        )
        with process:  # it waits for the process, so that it has to be ended inside
            try:
                yield process
            finally:
                process.kill()

    def here(self, *arguments: str | Path) -> CommandResult:
        """`main` itself, in this process. What would be a traceback for a user is raised here."""
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.object(sys, "argv", ["fedfuse", *map(str, arguments)]),
        ):
            code = _exit_code()
        return CommandResult(code, out.getvalue(), err.getvalue())


class Fork:
    """A fork of this process that runs the command line."""

    def __init__(self, pid: int, out: IO[bytes], err: IO[bytes]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._out, self._err = out, err

    def poll(self) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self) -> CommandResult:
        """What it printed, once it has ended."""
        end = time.monotonic() + ENOUGH
        while self.poll() is None:
            assert time.monotonic() < end, f"process {self.pid} has not ended"
            time.sleep(0.002)
        assert self.returncode is not None
        return CommandResult(self.returncode, self.out, self.err)

    @property
    def out(self) -> str:
        """What it has printed so far."""
        return _content(self._out)

    @property
    def err(self) -> str:
        return _content(self._err)


def _content(file: IO[bytes]) -> str:
    # By position: the fork writes at the offset that it shares with this process.
    return os.pread(file.fileno(), 2**20, 0).decode()


def _become_the_program(
    arguments: tuple[str | Path, ...],
    env: Mapping[str, str] | None,
    before: Callable[[], None] | None,
    out: IO[bytes],
    err: IO[bytes],
) -> None:
    """In a fork: the command line with streams and workers of its own. It never returns to the tests."""
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):  # as a new process has them
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        sys.stdout, sys.stderr = (open(n, "w", buffering=1, closefd=False) for n in (1, 2))  # noqa: SIM115
        os.environ.update(env or {})
        workers._spare.clear()  # those are the parent's
        sys.argv = ["fedfuse", *map(str, arguments)]
        if before is not None:
            before()
        code = _exit_code()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _exit_code() -> int:
    """The exit code of `main`."""
    try:
        program.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _as_in_a_terminal() -> None:
    """Who runs the tests in the background may ignore Ctrl-C or, by nohup, SIGHUP, and children inherit that."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _command(arguments: tuple[str | Path, ...]) -> list[str]:
    return [str(Path(sys.executable).parent / "fedfuse"), *map(str, arguments)]


def environment(more: Mapping[str, str] | None) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, "COLUMNS": "200", **(more or {})}


def models_of(run: Path) -> dict[str, str]:
    """The SHA-256 of each model file of a run directory."""
    files = sorted((run / "models").glob("*.safetensors"))
    assert files, f"{run} has no models"
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


MEASURED = ("seconds", "memory", "digest")


def rounds_of(run: Path) -> list[dict[str, Any]]:
    """What is on record, without times, memory and the digest of a line with them: those may differ."""
    records = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key not in MEASURED} for record in records]
