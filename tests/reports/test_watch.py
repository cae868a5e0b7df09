"""The page of a run that goes on, served on loopback."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedfuse.records import record
from fedfuse.reports.watch import server
from fedfuse.types import FedfuseError
from tests.reports.written import a_round, a_run


class Client:
    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str, host: str | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{self.port}"})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return a_run(tmp_path / "run", [0.5], rounds=2)


@pytest.fixture
def client(run: Path) -> Iterator[Client]:
    serving = server([run])
    thread = threading.Thread(target=serving.serve_forever, daemon=True)
    thread.start()
    try:
        yield Client(serving.server_address[1])
    finally:
        serving.shutdown()
        serving.server_close()
        thread.join(timeout=10)


def test_it_listens_on_loopback_only(run: Path) -> None:
    serving = server([run])
    assert serving.server_address[0] == "127.0.0.1"
    serving.server_close()


def test_the_state_changes_with_the_records(client: Client, run: Path) -> None:
    first = json.loads(client.get("/state.json")[1])
    assert first == json.loads(client.get("/state.json")[1])
    assert not first["finished"]
    assert "1 of 2 rounds" in client.get("/body.html")[1]
    record.append(run / "rounds.jsonl", a_round(2, 0.75))
    second = json.loads(client.get("/state.json")[1])
    assert second["version"] != first["version"]
    assert second["finished"]
    assert "75.00 %" in client.get("/body.html")[1]


def test_plotly_is_served_once_and_not_in_the_page(client: Client) -> None:
    status, page = client.get("/")
    assert (status, len(page) < 200_000) == (200, True)
    assert 'src="plotly.js"' in page
    assert client.get("/plotly.js")[1].startswith("/**")


def test_nothing_else_is_served(client: Client) -> None:
    for path in ("/experiment.toml", "/../rounds.jsonl", "/state.json?x=1"):
        assert client.get(path)[0] == 404


def test_a_foreign_name_for_loopback_is_refused(client: Client) -> None:
    assert client.get("/", host="evil.example:80")[0] == 403


def test_a_port_that_is_taken_is_an_error(run: Path) -> None:
    taken = server([run])
    try:
        with pytest.raises(FedfuseError, match="give another --port"):
            server([run], taken.server_address[1])
    finally:
        taken.server_close()
