"""The processes of a federation on this machine: started, watched and ended by whoever started them, and no others."""

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

GRACE = 5.0  # seconds between asking a process to end and ending it
TAIL = 12  # lines of a log that an error shows
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Processes:
    """Named processes, each with its log. Leaving the block ends them, the last first.

    Should this process be killed, the tether ends them: nothing goes on listening, or working in the run directory,
    unseen.
    """

    def __init__(self, logs: Path, environment: Mapping[str, str]) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._logs, self._environment = logs, dict(environment)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Processes:
        self._tether = subprocess.Popen(
            [sys.executable, "-I", reaper.__file__], stdin=subprocess.PIPE, text=True, start_new_session=True
        )
        return self

    def __exit__(self, *exception: object) -> None:
        for name in reversed(list(self._running)):
            self.stop(name)
        self._tether.communicate()

    def start(self, name: str, command: Sequence[str], **environment: str) -> None:
        """In a session of its own, so that Ctrl-C reaches this process alone, which then ends them in order."""
        with self.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                [str(Path(sys.executable).parent / command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**self._environment, **environment},
                start_new_session=True,
            )
        self._tell(self._running[name].pid)

    def run(self, name: str, command: Sequence[str], seconds: float) -> None:
        """A command that ends by itself, in time and well."""
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
        """Its exit code, once it has ended."""
        return self._running[name].poll()

    def must_run(self, name: str) -> None:
        if (code := self.ended(name)) is not None:
            raise FedfuseError(
                f"{name} ended with code {code}; go on with --resume. The end of its log:\n{self.tail(name)}"
            )

    def listening(self, name: str, host: str, port: int, seconds: float) -> None:
        """Wait until this process takes connections."""
        deadline = monotonic() + seconds
        while monotonic() < deadline:
            self.must_run(name)
            try:
                socket.create_connection((host, port), timeout=1).close()
                return
            except OSError:
                sleep(0.1)
        raise FedfuseError(f"{name} did not begin to listen within {seconds:g} s; its log: {self.log(name)}")

    def stop(self, name: str) -> None:
        """End it and what it started in turn: its group, which is its own. An app may hang on a SuperLink that is gone,
        and would hold the run directory."""
        process = self._running.pop(name)
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        self._tell(-process.pid)
        process.wait()

    def _tell(self, group: int) -> None:
        assert self._tether.stdin is not None
        self._tether.stdin.write(f"{group}\n")
        self._tether.stdin.flush()

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def tail(self, name: str) -> str:
        lines = COLOURS.sub("", self.log(name).read_text(encoding="utf-8", errors="replace")).splitlines()
        return "\n".join(f"  {line}" for line in lines[-TAIL:])


def free_ports(count: int, host: str) -> list[int]:
    """Ports that nobody listens on now, all different."""
    held = [socket.create_server((host, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def environment(home: Path) -> dict[str, str]:
    """For Flower's programs: nothing is reported, looked up or installed, and they find what this process finds."""
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
