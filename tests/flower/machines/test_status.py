"""`fedfuse flower status` from the records of a run; the SuperLink's answers are made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedfuse.flower import Deployment, client_app
from fedfuse.flower.machines.control import Control
from fedfuse.flower.machines.folders import Plan, make
from fedfuse.flower.server import serve
from fedfuse.types import FedfuseError
from tests.command_line import CommandLine
from tests.flower.federations import NODE_OF, NODES, experiment
from tests.flower.grid import LocalGrid

NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which the answers of b are refused."""
    out = tmp_path_factory.mktemp("status") / "federation"
    made = experiment(**{"run.rounds": 2})
    make(Plan(made, "fl.example.org", 8443, NAMES, share=True), out)
    named = {node: {**config, "name": NAMES[int(config["partition-id"])]} for node, config in NODES.items()}
    grid = LocalGrid(client_app(made), named)
    grid.tamper[NODE_OF[1]] = lambda asked, reply: [reply, reply]
    serve(made, grid, Deployment(str(out / "server" / "runs" / "first")))
    (out / "server" / "home" / "registered.json").write_text(json.dumps({"a": "30", "b": "40"}))
    return out / "server"


def test_nodes_rounds_and_refusals(server: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Control, "states", lambda self: {"30": "online", "40": "offline"})
    result = cli.here("flower", "status", server)
    assert result.code == 0, result.text
    rows = {line.split()[0]: line.split()[1:] for line in result.out.splitlines()[1:4]}
    assert rows["a"] == ["online", "0", "2", "0"]
    assert rows["b"] == ["offline", "1", "0", "2"]
    assert rows["c"] == ["not", "registered", "2", "2", "0"]
    assert "first: round 2 of 2, finished, accuracy" in result.out
    assert "round 2: b answered more than once" in result.out


def test_without_a_superlink_it_says_so(server: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(self: Control) -> dict[str, str]:
        raise FedfuseError("the SuperLink does not answer")

    monkeypatch.setattr(Control, "states", silent)
    result = cli.here("flower", "status", server)
    assert "the SuperLink does not answer" in result.out
    assert "round 2 of 2" in result.out


def test_it_is_for_the_server(server: Path, cli: CommandLine) -> None:
    result = cli.here("flower", "status", server.parent / "a")
    assert result.code == 2
    assert "this command is for the server" in result.err
