"""The commands of examples/flower/README.md, in their order, in one shell, on loopback."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest

from fedfuse.flower.loopback.credentials import HOST
from tests.command_line import CommandLine, rounds_of
from tests.flower.page import ASIDE, block, blocks, carried_out, copied, on_digits, on_images, session

pytestmark = pytest.mark.federation
STOPPING = 30.0  # seconds that what was told to stop has to be gone


def successive_ports(count: int) -> int:
    """The first of `count` ports in a row that nobody listens on now."""
    for first in range(20_000 + os.getpid() % 10_000, 60_000, count):
        held: list[socket.socket] = []
        try:
            held.extend(socket.create_server((HOST, first + k)) for k in range(count))
        except OSError:
            continue
        finally:
            for each in held:
                each.close()
        return first
    raise AssertionError("no ports are free")


@dataclass(frozen=True)
class Followed:
    """The page's commands, carried out in `folder`."""

    folder: Path
    output: str  # by all commands
    session: int
    listening: set[str]  # addresses, as they were while the federation was up

    @property
    def run(self) -> Path:
        return self.folder / "runs" / "flower-digits"


def listening(processes: list[int]) -> set[str]:
    """The addresses on which these processes take connections."""
    inodes = set()
    for pid in processes:
        try:
            inodes |= {str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()}
        except OSError:
            continue
    rows = [line.split() for t in ("tcp", "tcp6") for line in Path(f"/proc/net/{t}").read_text().splitlines()[1:]]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes}


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    folder = tmp_path_factory.mktemp("page")
    copied(folder)
    first = successive_ports(4)
    commands = (on_digits() + on_images()).replace("8000", str(first)).replace("9094", str(first + 1))
    seen: set[str] = set()
    with carried_out(commands, folder, look=lambda id: seen.update(listening(session(id)))) as (result, id):
        yield Followed(folder, result, id, seen)


def soon(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + STOPPING
    while not true() and time.monotonic() < deadline:
        time.sleep(0.2)
    return true()


def test_every_block_is_run_or_said_not_to_be() -> None:
    run = on_digits() + on_images()
    for each in blocks():
        assert (each in run) != each.startswith(tuple(ASIDE)), each


def test_the_stop_leaves_nothing_running(followed: Followed) -> None:
    assert soon(lambda: not session(followed.session))
    assert not list(followed.folder.glob("federation/*/*.pid"))


def test_nothing_listens_beyond_loopback(followed: Followed) -> None:
    assert followed.listening == {"0100007F"}  # 127.0.0.1


def test_the_run_directory_has_every_round(followed: Followed) -> None:
    (record,) = rounds_of(followed.run)
    assert (record["round"], record["rejected"]) == (1, {})
    assert len(record["cohort"]) == 3
    assert (followed.run / "models").is_dir()
    for expected in ("server.pem: OK", "round 1/1", "finished:completed"):
        assert expected in followed.output
    assert (followed.run / "report.html").stat().st_size > 10_000


def test_nodes_bring_their_data_to_three_architectures(followed: Followed) -> None:
    run = followed.folder / "runs" / "flower-cifar10"
    records = rounds_of(run)
    assert [(len(record["cohort"]), record["rejected"]) for record in records] == [(3, {}), (3, {})]
    declared = json.loads((run / "flower.json").read_text())["capabilities"]
    assert declared == {"0": 0.0, "1": 1.0, "2": 2.0}
    assert len(list((run / "models").glob("*.safetensors"))) == 4  # the clients' three and the server's


def test_what_is_secret_is_its_owners_alone(followed: Followed) -> None:
    files = [file for file in (followed.folder / "federation").rglob("*") if file.is_file()]
    assert {file.stat().st_mode & 0o077 for file in files} == {0}
    assert {str(file.relative_to(followed.folder / "federation")) for file in files if file.name == "ca.key"} == {
        "link/ca.key"
    }


def test_watch(followed: Followed, cli: CommandLine) -> None:
    """As the page says it, but for the browser."""
    _, *arguments = block("fedfuse watch").split()
    with cli.started(*arguments[:-1], followed.folder / arguments[-1], "--no-open") as process:
        assert process.stdout is not None
        address = next(match[0] for line in process.stdout if (match := re.search(r"http://127\.0\.0\.1:\d+\S*", line)))
        with urlopen(address, timeout=60) as page:
            assert b"flower-digits" in page.read()


def test_one_command(cli: CommandLine, tmp_path: Path) -> None:
    _, *arguments = block("fedfuse flower up").replace("--rounds 3", "--rounds 1").split()
    result = cli(*arguments, "--out", tmp_path / "run")
    assert result.code == 0, result.text
    (record,) = rounds_of(tmp_path / "run")
    assert record["rejected"] == {}
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000
