"""Start a machine's programs and keep them running: `fedfuse flower start`."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep

from fedfuse.flower.loopback.processes import Processes, environment
from fedfuse.flower.machines.control import Control
from fedfuse.flower.machines.machine import LOOPBACK, Machine, Place
from fedfuse.flower.machines.programs import programs
from fedfuse.types import FedfuseError

START = 120.0  # seconds for a program to listen
NOT_REGISTERED = "The server does not know this node's key, or has not noticed yet that it was offline."
PAUSE = 10.0  # seconds before a program that ended is started again


def nginx() -> str:
    """Return the path of nginx, which is often not on the path of ordinary users."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")
    if found is None:
        raise FedfuseError(
            "nginx is not installed: the server needs it as its proxy (Debian, Ubuntu: apt install nginx-light)"
        )
    return found


def start(machine: Machine, folder: Path, say: Callable[[str], None]) -> None:
    """Run the machine's programs until this process is interrupted or terminated."""
    folder = folder.resolve()
    place = Place(folder)
    own = programs(machine, folder, nginx() if machine.role == "server" else "")
    os.chdir(folder)  # apps write relative to it
    with _terminated(), Processes(place.home / "logs", environment(place.home)) as processes:
        homes = {name: str(folder / program.writes / "flower") for name, program in own.items()}
        for name, program in own.items():
            processes.start(name, program.command, FLWR_HOME=homes[name])
            if program.port is not None and name != "supernode":  # it listens once the server has let it in
                processes.listening(name, LOOPBACK, program.port, START)
            say(f"started {name}; its log: {processes.log(name)}")
        if machine.role == "server" and (new := Control(place).register()):
            say(f"registered: {', '.join(new)}")
        say(f"{machine.title} runs; Ctrl-C stops it")
        while True:
            for name in own:
                if processes.ended(name) is not None:
                    tail = processes.tail(name)
                    hint = f"{NOT_REGISTERED}\n" if "Failed to activate" in tail else ""
                    say(f"{name} ended, and starts again in {PAUSE:g} s. {hint}End of its log:\n{tail}")
                    processes.stop(name)
                    sleep(PAUSE)
                    processes.start(name, own[name].command, FLWR_HOME=homes[name])
            sleep(1)


@contextmanager
def _terminated() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, so that programs are ended in order."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
