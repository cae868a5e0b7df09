"""What a node does: whom it serves, what it keeps, what it refuses, and whose data it uses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flwr.app import Context, Message, RecordDict

import fedfuse
from fedfuse.data.examples import Examples
from fedfuse.flower import Deployment, client_app, wire
from fedfuse.flower.memory import KEEP, InFolder, InState, Memory, Store
from fedfuse.flower.roster import Roster
from fedfuse.flower.server import serve
from fedfuse.runs.setup import load_federation
from fedfuse.types import Snapshot, Task
from tests.flower.federations import NODE_OF, NODES, bits_of, deployed, experiment
from tests.flower.grid import LocalGrid

RUN = "0" * 32


def store(kind: str, folder: Path, state: RecordDict) -> Store:
    return InFolder(folder, RUN, 4) if kind == "folder" else InState(state, RUN, 4)


@pytest.mark.parametrize("kind", ["folder", "state"])
def test_memory_is_filed_by_round_and_only_what_may_count_is_kept(kind: str, tmp_path: Path) -> None:
    state = RecordDict()
    memory = Memory(store(kind, tmp_path, state))

    def keep(round: int, recalled: int) -> None:
        memory.keep(round, {"g": {"t": torch.tensor([float(round)])}}, recalled)

    for round in range(1, 9):  # each accepted in its turn
        keep(round, round - 1)
    again = Memory(store(kind, tmp_path, state))
    assert sorted(again._store.rounds()) == [*range(8 - KEEP, 9)]
    assert again.recall(6)["g"]["t"].tolist() == [6.0]
    assert again.recall(0) == {}
    keep(9, 8)
    keep(10, 8)  # 9 was refused
    assert sorted(again._store.rounds()) == [5, 6, 7, 8, 10]
    keep(7, 6)  # the server went on from round 6
    assert sorted(again._store.rounds()) == [5, 6, 7]
    with pytest.raises(fedfuse.FedfuseError, match=r"memory of round 9 .*memory-dir"):
        again.recall(9)


def test_a_run_that_names_itself_like_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(fedfuse.FedfuseError, match="32 hexadecimal digits"):
        Memory.of(str(tmp_path), RecordDict(), "../../etc", 0)


def roster(tmp_path: Path, nodes: dict[int, dict[str, int | float | str]]) -> Roster:
    members = Roster.open(tmp_path, 3)
    members.wait(LocalGrid(client_app(experiment()), nodes), 1, 0.1, 10)
    return members


def test_nodes_serve_whom_they_declare(tmp_path: Path) -> None:
    assert roster(tmp_path, NODES).nodes == NODE_OF


def test_nodes_that_declare_nothing_go_by_their_ids(tmp_path: Path) -> None:
    assert roster(tmp_path, {9: {}, 3: {}, 5: {}}).nodes == {0: 3, 1: 5, 2: 9}


def test_a_client_is_not_taken_over_while_its_node_is_online(tmp_path: Path) -> None:
    members = roster(tmp_path, {3: {"partition-id": 1}, 5: {"partition-id": 1}, 8: {"partition-id": 7}})
    assert members.nodes == {1: 3}
    members.update(LocalGrid(client_app(experiment()), {11: {"partition-id": 1}}), 10)
    assert members.nodes == {1: 11}  # it came back under another id


def test_too_few_nodes_are_an_error_after_a_while(tmp_path: Path) -> None:
    with pytest.raises(fedfuse.FedfuseError, match="0 of 3 clients have a node after"):
        Roster.open(tmp_path, 3).wait(LocalGrid(client_app(experiment()), {}), 1, 0.1, 1)


def test_architectures_go_by_what_nodes_declare(tmp_path: Path) -> None:
    made = experiment(**{"models.clients": {"mlp:4": 1, "mlp:6": 1, "mlp:8": 1}, "run.rounds": 1})
    capable = {node: {**NODES[node], "capability": value} for node, value in ((30, 2.0), (40, 9.5), (50, 1.0))}
    serve(made, LocalGrid(client_app(made), capable), Deployment(str(tmp_path / "run")))
    federation = (tmp_path / "run" / "federation.json").read_text()
    assert '"architectures": ["mlp:6", "mlp:8", "mlp:4"]' in federation


@pytest.mark.parametrize("as_pair", [False, True])
def test_a_node_needs_only_its_own_data(as_pair: bool, tmp_path: Path) -> None:
    made = experiment("scaffold")
    federation = load_federation(made)

    def own(context: Context) -> Examples | tuple[torch.Tensor, torch.Tensor]:
        mine = federation.train.subset(federation.parts[int(context.node_config["partition-id"])])
        return (mine.x, mine.y) if as_pair else mine

    fedfuse.run(made, tmp_path / "here")
    serve(made, LocalGrid(client_app(made, data=own), NODES), Deployment(str(tmp_path / "there")))
    assert bits_of(tmp_path / "there") == bits_of(tmp_path / "here")


def asked(tmp_path: Path, change: object) -> str:
    """Why a node refuses a task."""
    run = deployed(tmp_path, experiment())
    task = run.algorithm.brief(run.server, 0, run.ctx)
    about, task = change({"arch": run.ctx.archs[0], "client": 0}, task)  # type: ignore[operator]
    message = run.engine._message(task, NODE_OF[0], run.ctx, "attempt", wire.Encoder())
    message.content[wire.ABOUT].update(about)
    message.metadata.__dict__["_message_id"] = "asked"
    reply = run.grid.app(message, run.grid.contexts[NODE_OF[0]])
    return str(wire.about(reply)["failure"])


def with_model(task: Task, **changes: object) -> Task:
    assert task.model is not None
    return replace(task, model=replace(task.model, **changes))  # type: ignore[arg-type]


def broadcast(task: Task) -> Task:
    assert task.model is not None
    return with_model(task, params={name: t[:1] for name, t in task.model.params.items()})


REFUSED = {
    "does not name": lambda about, task: ({**about, "arch": "os:getcwd"}, task),
    "os:system, which its experiment does not name": lambda about, task: (about, with_model(task, arch="os:system")),
    "received a mlp:6:bn whose": lambda about, task: (about, broadcast(task)),
    "at the node of client 0": lambda about, task: ({**about, "client": 2}, task),
    "32 hexadecimal": lambda about, task: ({**about, "run": "../x"}, task),
    "memory is -1": lambda about, task: ({**about, "memory": -1}, task),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_node_checks_what_it_is_sent(reason: str, tmp_path: Path) -> None:
    assert reason in asked(tmp_path, REFUSED[reason])


def test_a_node_of_another_version_says_so(tmp_path: Path) -> None:
    run = deployed(tmp_path, experiment())
    content = wire.content({"protocol": 99, "client": 0}, wire.TASK, wire.array_of(b""))
    message = Message(content, NODE_OF[0], "train")
    with pytest.raises(fedfuse.FedfuseError, match=r"version 99, .* version 2: install the same fedfuse"):
        run.grid.app(message, run.grid.contexts[NODE_OF[0]])


def test_a_reason_is_one_line_of_bounded_length() -> None:
    assert wire.excerpt("a\nb\x1b[2J") == "a b [2J"
    assert len(wire.excerpt("x" * 10_000)) < 600


def test_a_snapshot_with_a_tensor_too_many_is_not_loaded() -> None:
    from fedfuse.flower.reply_checks import Refused, check_model

    with pytest.raises(Refused, match="received a a whose more does not fit"):
        check_model(Snapshot("a", {"more": torch.zeros(1)}), {}, {})
