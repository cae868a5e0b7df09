"""Start, watch and end the processes of a federation on this machine, and no others."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from fedfuse.flower.loopback import reaper
from fedfuse.types import FedfuseError

GRACE = 5.0  # seconds between SIGTERM and SIGKILL
TAIL = 12  # lines of a log that an error shows
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Processes:
    """Named processes, each with its log. Leaving the block ends them, the last first.

    If this process is killed, the reaper ends them, so that none keeps listening or writing to the run directory.
    """

    def __init__(self, logs: Path, environment: Mapping[str, str]) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._logs, self._environment = logs, dict(environment)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Processes:
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", reaper.__file__], stdin=subprocess.PIPE, text=True, start_new_session=True
        )
        return self

    def __exit__(self, *exception: object) -> None:
        for name in reversed(list(self._running)):
            self.stop(name)
        self._reaper.communicate()

    def start(self, name: str, command: Sequence[str], **environment: str) -> None:
        """Start a process in its own session: Ctrl-C then reaches only this process, which ends the others in order."""
        with self.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                [str(Path(sys.executable).parent / command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**self._environment, **environment},
                start_new_session=True,
            )
        self._notify_reaper(self._running[name].pid)

    def run(self, name: str, command: Sequence[str], seconds: float) -> None:
        """Run a command to its end; raise if it fails or takes longer than `seconds`."""
        self.start(name, command)
        try:
            code = self._running[name].wait(seconds)
        except subprocess.TimeoutExpired:
            raise FedfuseError(f"{name} did not end within {seconds:g} s; its log: {self.log(name)}") from None
        finally:
            self.stop(name)
        if code != 0:
            raise FedfuseError(f"{name} failed with exit code {code}:\n{self.tail(name)}")

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def ended(self, name: str) -> int | None:
        """Return the exit code, or None while the process runs."""
        return self._running[name].poll()

    def must_run(self, name: str) -> None:
        if (code := self.ended(name)) is not None:
            raise FedfuseError(
                f"{name} ended with exit code {code}; continue with --resume. End of its log:\n{self.tail(name)}"
            )

    def listening(self, name: str, host: str, port: int, seconds: float) -> None:
        """Wait until this process accepts connections."""
        deadline = monotonic() + seconds
        while monotonic() < deadline:
            self.must_run(name)
            try:
                socket.create_connection((host, port), timeout=1).close()
                return
            except OSError:
                sleep(0.1)
        raise FedfuseError(f"{name} did not start to listen within {seconds:g} s; its log: {self.log(name)}")

    def stop(self, name: str) -> None:
        """End the process and its whole process group.

        An app that it started may hang on a SuperLink that is gone, and would keep the run directory locked.
        """
        process = self._running.pop(name)
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        self._notify_reaper(-process.pid)
        process.wait()

    def _notify_reaper(self, group: int) -> None:
        assert self._reaper.stdin is not None
        self._reaper.stdin.write(f"{group}\n")
        self._reaper.stdin.flush()

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def tail(self, name: str) -> str:
        lines = COLOURS.sub("", self.log(name).read_text(encoding="utf-8", errors="replace")).splitlines()
        return "\n".join(f"  {line}" for line in lines[-TAIL:])


def free_ports(count: int, host: str) -> list[int]:
    """Return distinct ports that are free now."""
    sockets = [socket.create_server((host, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def environment(home: Path) -> dict[str, str]:
    """Return the environment of Flower's programs: no telemetry, update checks or installs; this process's paths."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p or str(Path.cwd()) for p in sys.path),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "OMP_NUM_THREADS": "1",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
    }
