"""A real federation on loopback: a SuperLink and three SuperNodes, TLS, node authentication, isolated apps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fedfuse
from fedfuse.flower import Deployment
from fedfuse.flower.loopback.credentials import HOST, Credentials
from fedfuse.flower.loopback.federation import LINK, Loopback, loopback
from fedfuse.flower.loopback.processes import free_ports
from fedfuse.flower.loopback.up import submit
from fedfuse.runs.display import Silent
from fedfuse.types import FedfuseError
from tests.command_line import rounds_of
from tests.doubles import brief_settings
from tests.flower.federations import bits_of

pytestmark = pytest.mark.federation  # a process per message: two cores that do other work as well are too few
NODES = 3
SECONDS = 300.0  # for a round: a process per node that imports torch, on however busy a machine


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    with loopback(tmp_path_factory.mktemp("federation"), NODES, Silent()) as up:
        yield up


@pytest.mark.parametrize("name", ["fedavg", "feddf", "fedbe", "fed-et", "scaffold"])
def test_a_federation_gives_the_bits_of_one_process(name: str, federation: Loopback, tmp_path: Path) -> None:
    settings: dict[str, object] = {
        "algorithm.name": name,
        **{f"algorithm.{key}": value for key, value in brief_settings(name).items()},
        "local.epochs": 1,
        "partition.clients": NODES,
        "run.fraction": 1.0,
        "run.rounds": 3,
        "run.workers": 1,
    }
    if name == "fed-et":
        settings["models.clients"] = {"mlp:64-32": 1, "mlp:32": 1}
    made = fedfuse.load("digits", settings)
    fedfuse.run(made, tmp_path / "here")
    submit(
        made,
        tmp_path / "there",
        federation,
        Deployment(str(tmp_path / "there"), timeout=SECONDS, wait=SECONDS, start=NODES),
        Silent(),
    )
    assert bits_of(tmp_path / "there") == bits_of(tmp_path / "here")
    assert rounds_of(tmp_path / "there") == rounds_of(tmp_path / "here")


STRANGERS = {
    "unregistered": "Failed to activate SuperNode",
    "keyless": "must be registered",
    "plain text": "failed with exit code",
    "of another authority": "failed with exit code",
}


@pytest.mark.parametrize("who", STRANGERS)
def test_a_stranger_is_turned_away(who: str, federation: Loopback, tmp_path: Path) -> None:
    other, trust = Credentials.make(tmp_path, 1), ["--root-certificates", str(federation.credentials.authority)]
    proof = {
        "unregistered": [*trust, "--auth-supernode-private-key", str(other.node_key(0))],
        "keyless": trust,
        "plain text": ["--insecure"],
        "of another authority": ["--root-certificates", str(other.authority)],
    }
    (port,) = free_ports(1, HOST)
    link = ["--superlink", f"{HOST}:{federation.port}", "--max-retries", "1"]
    own = ["--isolation", "process", "--host", HOST, "--port", str(port)]
    with pytest.raises(FedfuseError, match=STRANGERS[who]):
        federation.processes.run(who.replace(" ", "-"), ["flower-supernode", *link, *proof[who], *own], 120)


def test_nothing_listens_beyond_loopback(federation: Loopback) -> None:
    """Of the processes that were started here."""
    inodes = {
        Path(f"/proc/{pid}/fd/{fd.name}").readlink().name
        for pid in (federation.processes.pid(LINK), *(federation.processes.pid(f"node-{k}") for k in range(NODES)))
        for fd in Path(f"/proc/{pid}/fd").iterdir()
        if fd.is_symlink()
    }
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in inodes:
                listening.append(local.split(":")[0])
    assert len(listening) == NODES + 1
    assert set(listening) == {"0100007F"}  # 127.0.0.1
