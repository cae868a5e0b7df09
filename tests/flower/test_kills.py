"""`kill -9` of each part of a real federation, in the middle of a round: nothing is lost, and the bits are the same.

The undisturbed run is one in this process: over Flower it has the same bits (test_loopback.py).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import fedfuse
from fedfuse.config.experiment import Experiment
from fedfuse.flower import Deployment
from fedfuse.flower.loopback.credentials import HOST
from fedfuse.flower.loopback.federation import LINK, Loopback, loopback
from fedfuse.flower.loopback.processes import free_ports
from fedfuse.flower.loopback.up import submit
from fedfuse.records import record
from fedfuse.records.record import RoundRecord
from fedfuse.runs.display import Silent
from tests.command_line import rounds_of
from tests.flower.federations import bits_of, experiment

pytestmark = pytest.mark.federation
NODES = 3
PATIENCE = 420.0  # seconds, on however busy a machine


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Loopback]:
    with loopback(tmp_path / "federation", NODES, Silent()) as up:
        yield up


def until(what: str, condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(0.2)


def begun(made: Experiment, out: Path, federation: Loopback, deployment: Deployment) -> Future[list[RoundRecord]]:
    """The run, in a thread."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(submit, made, out, federation, deployment, Silent())
    pool.shutdown(wait=False)
    return future


def rounds(out: Path) -> list[RoundRecord]:
    return record.read(out / "rounds.jsonl")


def apps(program: str, folder: Path) -> list[int]:
    """Flower's processes of this federation that run this side's app."""
    processes = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            home = f"FLWR_HOME={folder}".encode()
            if (
                any(word.endswith(program.encode()) for word in words[:2])
                and home in (process / "environ").read_bytes()
            ):
                processes.append(int(process.name))
        except OSError:  # it has just ended
            continue
    return processes


def test_a_killed_node_costs_its_answer_and_takes_part_again(federation: Loopback, tmp_path: Path) -> None:
    made = experiment("fedavg", **{"run.rounds": 8, "run.quorum": 2})
    out = tmp_path / "run"
    # Flower gives a silent node up after a minute, and so ends the round; our own deadline is for a busy machine.
    running = begun(made, out, federation, Deployment(str(out), timeout=PATIENCE, wait=PATIENCE, start=NODES))
    until("round 1", lambda: running.done() or rounds(out))
    assert rounds(out)[0].clients.keys() == {"0", "1", "2"}
    os.kill(federation.processes.pid("node-2"), signal.SIGKILL)
    until("a round without client 2", lambda: running.done() or any("2" in record.rejected for record in rounds(out)))
    assert not running.done(), running.exception()
    without = next(record for record in rounds(out) if "2" in record.rejected)
    assert {"0", "1"} <= without.clients.keys()
    for name in ("node-2", "node-2-apps"):
        federation.processes.stop(name)
    federation.supernode(2, *free_ports(1, HOST))
    history = running.result(PATIENCE)
    assert len(history) == 8
    assert any("2" in record.clients for record in history if record.round > without.round), [
        d.rejected for d in history
    ]


@pytest.mark.parametrize("part", ["serverapp", "superlink"])
def test_a_killed_server_goes_on_to_the_same_models(part: str, tmp_path: Path) -> None:
    made = experiment("scaffold")
    whole, out = tmp_path / "whole", tmp_path / "run"
    fedfuse.run(made, whole)
    deployment = Deployment(str(out), timeout=PATIENCE, wait=PATIENCE, start=NODES)
    folder = tmp_path / "federation"
    with loopback(folder, NODES, Silent()) as federation:
        running = begun(made, out, federation, deployment)
        until("round 1", lambda: running.done() or rounds(out))
        until("round 2 at a node", lambda: running.done() or apps("flwr-clientapp", folder / "home"))
        victims = apps("flwr-serverapp", folder / "home") if part == "serverapp" else [federation.processes.pid(LINK)]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(fedfuse.FedfuseError, match="continue with --resume"):
            running.result(PATIENCE)
        assert victims
        assert len(rounds(out)) < 3
    with loopback(folder, NODES, Silent()) as federation:
        submit(made, out, federation, replace(deployment, resume=True), Silent())
    assert bits_of(out) == bits_of(whole)
    assert rounds_of(out) == rounds_of(whole)
