"""What `fedfuse flower check` finds: made-up faults, one at a time, against a TLS server on loopback."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import torch

from fedfuse.flower import certificates
from fedfuse.flower.certificates import Signed, new_authority, new_server
from fedfuse.flower.loopback.processes import free_ports
from fedfuse.flower.machines.check import check_data, check_files, check_machine, check_versions
from fedfuse.flower.machines.connection import Server, check_connection
from fedfuse.flower.machines.folders import Plan, make
from fedfuse.flower.machines.machine import LOOPBACK, Machine, Place, read_machine, versions
from fedfuse.flower.machines.node_data import Needed
from fedfuse.types import FedfuseError
from tests.command_line import CommandLine
from tests.flower.federations import experiment


@contextmanager
def serving(own: Signed, folder: Path, status: int = 401, ahead: float = 0.0) -> Iterator[int]:
    """A server that refuses a heartbeat as a SuperLink does, with a clock that is ahead by some seconds."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response_only(status)
            self.send_header("Date", format_datetime(datetime.now(UTC) + timedelta(seconds=ahead), usegmt=True))
            self.send_header("Content-Length", "0")
            self.end_headers()

    folder.mkdir(exist_ok=True)
    own.write(folder / "cert.pem", folder / "cert.key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "cert.key")
    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    server.handle_error = lambda *about: None  # type: ignore[method-assign]  # a client that does not trust it hangs up
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def authority() -> Signed:
    return new_authority("authority", 10)


def found(
    tmp_path: Path, authority: Signed, own: Signed, status: int = 401, ahead: float = 0.0
) -> dict[str, list[str]]:
    authority.write(tmp_path / "ca.pem")
    with serving(own, tmp_path / "server", status, ahead) as port:
        return check_connection(Server("fl.example.org", port, tmp_path / "ca.pem", at=LOOPBACK))


def at(monkeypatch: pytest.MonkeyPatch, days: float, make: Callable[[], Signed]) -> Signed:
    """What is made while the clock is off by some days."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + timedelta(days=days)

    monkeypatch.setattr(certificates, "datetime", Clock)
    made = make()
    monkeypatch.undo()
    return made


def test_a_server_that_is_as_it_should_be(tmp_path: Path, authority: Signed) -> None:
    own = new_server(authority, ("fl.example.org",), 10)
    assert found(tmp_path, authority, own) == {"port": [], "certificate": [], "clock": [], "superlink": []}


@pytest.mark.parametrize(
    ("hosts", "reason"),
    [(("other.example.org",), "is for another name"), ((LOOPBACK,), "is for another name")],
)
def test_a_certificate_for_another_name(hosts: tuple[str, ...], reason: str, tmp_path: Path, authority: Signed) -> None:
    (problem,) = found(tmp_path, authority, new_server(authority, hosts, 10))["certificate"]
    assert reason in problem


def test_a_certificate_of_another_authority(tmp_path: Path, authority: Signed) -> None:
    own = new_server(new_authority("authority", 10), ("fl.example.org",), 10)
    (problem,) = found(tmp_path, authority, own)["certificate"]
    assert "not of this federation's authority" in problem


def test_a_certificate_that_has_expired(tmp_path: Path, authority: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    own = at(monkeypatch, -20, lambda: new_server(authority, ("fl.example.org",), 10))
    (problem,) = found(tmp_path, authority, own)["certificate"]
    assert "has expired: renew it" in problem


def test_a_clock_that_is_behind_makes_a_certificate_invalid(
    tmp_path: Path, authority: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate was made by the server's clock, which is three days ahead of this one: both are said."""
    own = at(monkeypatch, 3, lambda: new_server(authority, ("fl.example.org",), 10))
    problems = found(tmp_path, authority, own, ahead=3 * 24 * 3600)
    assert "is not valid yet" in problems["certificate"][0]
    assert "set the clock" in problems["certificate"][0]
    assert "behind the server's" in problems["clock"][0]


@pytest.mark.parametrize(("ahead", "where"), [(-60, "s ahead of"), (-3, None), (200, None), (400, "s behind")])
def test_a_clock_as_far_off_as_flower_refuses(
    ahead: float, where: str | None, tmp_path: Path, authority: Signed
) -> None:
    clock = found(tmp_path, authority, new_server(authority, ("fl.example.org",), 10), ahead=ahead)["clock"]
    assert (where is None and not clock) or (where is not None and where in clock[0])


@pytest.mark.parametrize(("status", "reason"), [(502, "not the SuperLink behind it"), (404, "not a server of fedfuse")])
def test_a_server_without_its_superlink(status: int, reason: str, tmp_path: Path, authority: Signed) -> None:
    own = new_server(authority, ("fl.example.org",), 10)
    (problem,) = found(tmp_path, authority, own, status)["superlink"]
    assert reason in problem


def test_a_port_that_is_closed_and_a_name_that_is_none(tmp_path: Path) -> None:
    (port,) = free_ports(1, LOOPBACK)
    (problem,) = check_connection(Server("fl.example.org", port, tmp_path, at=LOOPBACK))["port"]
    assert "port closed: nothing listens" in problem
    (problem,) = check_connection(Server("no.such.host.invalid", port, tmp_path))["port"]
    assert "has no address" in problem


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("check") / "federation"
    make(Plan(experiment(), LOOPBACK, 8443, ["a", "b", "c"], share=False), out)
    return out


@pytest.fixture
def node(federation: Path, tmp_path: Path) -> Path:
    shutil.copytree(federation / "b", tmp_path / "b")
    return tmp_path / "b"


def test_versions_that_differ(node: Path) -> None:
    machine = read_machine(node)
    assert check_versions(machine) == []
    other = replace(machine, versions={**versions(), "torch": "2.13.0+cu130", "flwr": "1.40.0", "python": "3.99"})
    problems = check_versions(other) if versions()["torch"].startswith("2.13.0") else check_versions(other)[:2]
    assert [problem.split()[0] for problem in problems] == ["python", "flwr"]
    assert "requirements.txt" in problems[1]


def test_files_that_are_missing_or_open_to_others(node: Path) -> None:
    place = Place(node)
    assert check_files(read_machine(node), place) == []
    place.node_key.chmod(0o644)
    place.local_key.unlink()
    problems = check_files(read_machine(node), place)
    assert len(problems) == 2
    assert any("can be read by others (mode 644): chmod 600" in problem for problem in problems)


def save(node: Path, x: np.ndarray, y: np.ndarray) -> None:
    np.savez(node / "data" / "train.npz", x=x, y=y)


X, Y = np.zeros((6, 4), np.float32), np.arange(6) % 3
DATA = {
    "there is nothing in data": lambda node: None,
    "has inputs float32 (5,), but the experiment needs float32 (4,)": lambda n: save(
        n, np.zeros((6, 5), np.float32), Y
    ),
    "has inputs float64": lambda node: save(node, X.astype(np.float64), Y),
    "has labels from 0 to 7, but the experiment has 3 classes": lambda node: save(node, X, Y + 5 * (Y == 2)),
    "6 inputs and 5 labels": lambda node: save(node, X, Y[:5]),
    "that are not finite": lambda node: save(node, X * np.nan, Y),
    "give numbers, and whole numbers": lambda node: save(node, X, Y.astype(float)),
    "cannot read arrays x and y": lambda node: (node / "data" / "train.npz").write_bytes(b"PK nonsense"),
}


@pytest.mark.parametrize("reason", DATA)
def test_data_that_is_missing_or_does_not_fit(reason: str, node: Path) -> None:
    DATA[reason](node)
    (problem,) = check_data(read_machine(node), Place(node))
    assert reason in problem


def test_data_that_fits_and_classes_by_name(node: Path) -> None:
    save(node, X, Y)
    assert check_data(read_machine(node), Place(node)) == []
    needed = Needed([4], "float32", ["cat", "dog"])
    with pytest.raises(FedfuseError, match=r"2 classes, 0 to 1 \(cat, dog\)"):
        needed.check(torch.zeros(2, 4), torch.tensor([0, 2]), "data")


def test_all_problems_are_said_at_once(node: Path, cli: CommandLine) -> None:
    Place(node).node_key.chmod(0o644)
    (port,) = free_ports(1, LOOPBACK)
    machine: Machine = replace(read_machine(node), port=port)
    problems = check_machine(machine, node)
    assert {topic for topic, each in problems.items() if each} == {"files", "data", "port"}
    text = (node / "federation.toml").read_text().replace("port = 8443", f"port = {port}")
    (node / "federation.toml").write_text(text)
    result = cli.here("flower", "check", node)
    assert result.code == 1
    assert "3 problems" in result.out
    assert "versions: ok" in result.out
