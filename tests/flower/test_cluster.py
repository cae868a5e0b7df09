"""`--engine flower-simulation` on a cluster of two machines, named by RAY_ADDRESS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import SMALL, CommandLine, rounds_of
from tests.flower.federations import bits_of
from tests.flower.networks import OWN, WHY_NOT, joined, possible
from tests.flower.page import carried_out

pytestmark = pytest.mark.federation

SCAFFOLD = (*SMALL, "-a", "scaffold", "-r", "2", "--no-report")
COMMANDS = """
mount -t tmpfs tmpfs /mnt  # the names of Ray's sockets must be short
export RAY_USAGE_STATS_ENABLED=0
ip netns exec head ray start --head --node-ip-address 10.9.0.1 --port 6379 --num-cpus 1 --temp-dir /mnt/ray \\
    --include-dashboard false
ip netns exec other ray start --address 10.9.0.1:6379 --node-ip-address 10.9.0.2 --num-cpus 1
while sleep 0.5; do
    for machine in head other; do
        for pid in $(ip netns pids $machine); do cat /proc/$pid/cmdline || true; done >> $machine.txt 2> /dev/null
    done
done &
RAY_ADDRESS=10.9.0.1:6379 ip netns exec head fedfuse {command} --engine flower-simulation --out "$PWD/run"
for look in 1 2 3 4 5 6; do  # what it says of itself is some seconds old
    ip netns exec head ray status --address 10.9.0.1:6379 > status.txt
    if grep '0.0/2.0 CPU' status.txt; then break; fi
    sleep 5
done
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if not possible():
        pytest.skip(WHY_NOT)
    folder = tmp_path_factory.mktemp("cluster")
    commands = joined("head", "other") + COMMANDS.format(command=" ".join(map(str, SCAFFOLD)))
    with carried_out(commands, folder, OWN):
        yield folder


def test_the_cluster_gives_the_bits_of_one_process(ran: Path, cli: CommandLine, tmp_path: Path) -> None:
    assert cli.here(*SCAFFOLD, "--workers", "1", "--out", tmp_path / "here").code == 0
    assert bits_of(ran / "run") == bits_of(tmp_path / "here")
    assert rounds_of(ran / "run") == rounds_of(tmp_path / "here")


def test_both_machines_did_clients_work(ran: Path) -> None:
    for machine in ("head", "other"):
        assert "ray::ClientAppActor" in (ran / f"{machine}.txt").read_text(), machine


def test_the_cluster_is_left_up_and_free(ran: Path) -> None:
    status = (ran / "status.txt").read_text()
    assert "0.0/2.0 CPU" in status, status
