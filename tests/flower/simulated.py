"""Flower's simulation with a network of its own: `python -m tests.flower.simulated FOLDER`, within `unshare --net`.

One process for all runs, for each start of Ray and each import of PyTorch costs seconds.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import sys
import time
from dataclasses import replace
from pathlib import Path
from threading import Thread

from fedfuse.algorithm import Algorithm
from fedfuse.algorithms.scaffold import scaffold
from fedfuse.config.experiment import Experiment, load
from fedfuse.context import Context
from fedfuse.flower.simulation import simulate
from fedfuse.types import Groups, Task, Update
from tests.command_line import SMALL, CommandLine

FEDAVG = (*SMALL, "-r", "2", "--workers", "2", "--no-report")
AT_WORK = "FEDFUSE_TEST_AT_WORK"  # names a file that is written by a client of round 2, which then never ends


def hanging() -> Algorithm:
    """SCAFFOLD whose clients hang in round 2, the first time."""
    plain = scaffold()

    def local(task: Task, memory: Groups, ctx: Context) -> Update:
        file = os.environ.get(AT_WORK)
        if file and task.round == 2:
            Path(file).touch()
            time.sleep(600)
        return plain.local(task, memory, ctx)

    return replace(plain, local=local)


def experiment() -> Experiment:
    """All clients in both rounds: each has kept something by round 2."""
    return load(SMALL[1], {"algorithm.name": "tests.flower.simulated:hanging", "run.rounds": 2, "run.fraction": 1.0})


def raise_loopback() -> None:
    """`ip link set lo up`, where there is no iproute2."""
    up, set_flags = 0x1, 0x8914
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh14x", b"lo", up))


def interrupt_once_at_work(file: Path) -> None:
    while not file.exists():
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)


def main() -> None:
    folder = Path(sys.argv[1])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests in the background may ignore it
    raise_loopback()
    result = CommandLine().here(*FEDAVG, "--engine", "flower-simulation", "--out", folder / "fedavg")
    print(result.code, result.text, flush=True)
    os.environ[AT_WORK] = str(folder / "at-work")
    Thread(target=interrupt_once_at_work, args=(folder / "at-work",), daemon=True).start()
    try:
        simulate(experiment(), folder / "scaffold")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    del os.environ[AT_WORK]
    simulate(experiment(), folder / "scaffold", resume=True)
    print("resumed", flush=True)


if __name__ == "__main__":
    main()
