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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from fedfuse import cli as program

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
    """`cli("run", "digits")` in a process of its own; `cli.here(...)` in this one, where no import is paid for."""

    def __call__(
        self, *arguments: str | Path, env: Mapping[str, str] | None = None, before: Callable[[], None] | None = None
    ) -> CommandResult:
        process = subprocess.run(
            _command(arguments),
            capture_output=True,
            text=True,
            timeout=ENOUGH,
            env=environment(env),
            preexec_fn=before,
        )
        return CommandResult(process.returncode, process.stdout, process.stderr)

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
        out, err, code = io.StringIO(), io.StringIO(), 0
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.object(sys, "argv", ["fedfuse", *map(str, arguments)]),
        ):
            try:
                program.main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
        return CommandResult(code, out.getvalue(), err.getvalue())


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
