"""The engine over a Grid: the same bits as in this process, deadlines, memory at nodes, resumption."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from threading import Event

import pytest
import torch
from flwr.app import Message

import fedfuse
from fedfuse.flower import Deployment, client_app, replies
from fedfuse.flower.server import serve
from fedfuse.records.record import RoundRecord
from fedfuse.round import run_round
from fedfuse.types import Failure
from fedfuse.vet import Vetting
from tests.command_line import rounds_of
from tests.flower.federations import NODE_OF, NODES, bits_of, deployed, experiment
from tests.flower.grid import LocalGrid

# Each kind of message. FedProx, FedAvgM, FedBE, v-distillation and one-shot send what FedAvg and FedDF send.
ALGORITHMS = ["fedavg", "feddf", "fed-et", "scaffold", "moon", "ds-fl", "decentralised-logits", "fedgkt"]


def served(made: fedfuse.Experiment, grid: LocalGrid, out: Path, **settings: float | bool) -> None:
    serve(made, grid, Deployment(str(out), **settings))  # type: ignore[arg-type]


def remembering(folder: Path) -> dict[int, dict[str, int | float | str]]:
    return {node: {**config, "memory-dir": str(folder / str(node))} for node, config in NODES.items()}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_grid_gives_the_bits_of_this_process(name: str, tmp_path: Path) -> None:
    made = experiment(name, **({"models.clients": {"mlp:6": 1, "mlp:6-5:bn": 1}} if name == "fedgkt" else {}))
    fedfuse.run(made, tmp_path / "here")
    served(made, LocalGrid(client_app(made), NODES), tmp_path / "there")
    if name != "decentralised-logits":  # its server has no model: the records hold what clients measured of theirs
        assert bits_of(tmp_path / "there") == bits_of(tmp_path / "here")
    assert rounds_of(tmp_path / "there") == rounds_of(tmp_path / "here")


def test_what_is_the_same_for_all_is_encoded_once_and_pushed_as_a_list(tmp_path: Path) -> None:
    run = deployed(tmp_path, experiment())
    run_round(run.algorithm, run.server, run.engine, [0, 1, 2], Vetting(), run.ctx)
    tasks = run.grid.pushes[-1]
    assert [message.metadata.dst_node_id for message in tasks] == [NODE_OF[k] for k in (0, 1, 2)]
    assert len({id(message.content["task"]["blob"].data) for message in tasks}) == 1
    assert {message.content["task"].object_id for message in tasks} == {tasks[0].content["task"].object_id}


def test_early_replies_wait_on_disk_past_a_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "IN_MEMORY", 0)
    run = deployed(tmp_path, experiment())
    stream = run.engine.run(
        run.algorithm, (run.algorithm.brief(run.server, k, run.ctx) for k in (2, 0, 1)), run.ctx, run.server
    )
    answers = [next(stream)]
    answers += list(stream)
    assert [answer.client for answer in answers] == [2, 0, 1]
    assert not any(isinstance(answer, Failure) for answer in answers)
    assert not list(tmp_path.glob("scratch/*"))


class Stuck(LocalGrid):
    """One node's reply never comes through: the pull of it blocks."""

    stuck = 0
    release = Event()

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        (id,) = message_ids
        if self._asked[id].metadata.dst_node_id == self.stuck:
            self.release.wait(60)
            return []
        return super().pull_messages([id])


def test_the_deadline_holds_though_a_pull_blocks(tmp_path: Path) -> None:
    run = deployed(tmp_path, experiment(), timeout=3)
    run.grid.__class__ = Stuck
    run.grid.stuck = NODE_OF[0]  # type: ignore[attr-defined]
    start = time.monotonic()
    _, record = run_round(run.algorithm, run.server, run.engine, [0, 1, 2], Vetting(), run.ctx)
    Stuck.release.set()
    assert record.rejected == {"0": "did not answer within 3 s"}
    assert set(record.clients) == {"1", "2"}
    assert time.monotonic() - start < 6


def test_a_node_that_is_gone_costs_its_client(tmp_path: Path) -> None:
    run = deployed(tmp_path, experiment())
    del run.grid.contexts[NODE_OF[2]]
    _, record = run_round(run.algorithm, run.server, run.engine, [0, 1, 2], Vetting(), run.ctx)
    assert record.rejected == {"2": "has no node online"}


def test_a_superlink_that_gives_nothing_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    run = deployed(tmp_path, experiment(), timeout=1)

    def broken(ids: Iterable[str]) -> Iterable[Message]:
        raise ConnectionError("gone")

    run.grid.pull_messages = broken  # type: ignore[method-assign]
    with pytest.raises(fedfuse.FedfuseError, match=r"the SuperLink gives no replies: gone.*--resume"):
        run_round(run.algorithm, run.server, run.engine, [0, 1, 2], Vetting(), run.ctx)


class Ending(LocalGrid):
    """The server dies once round `last` is over: nothing of the next is taken."""

    last = 2

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        pushed = list(messages)
        if any(m.metadata.group_id == str(self.last + 1) for m in pushed):
            super().push_messages(pushed)
            for message in pushed:  # the nodes have worked, and what they kept is of a round that never was
                self.app(message, self.contexts[message.metadata.dst_node_id])
            raise KeyboardInterrupt
        return super().push_messages(pushed)


@pytest.mark.parametrize("name", ["scaffold", "moon", "fedgkt"])
def test_a_run_goes_on_from_its_checkpoint_with_the_memory_that_it_names(name: str, tmp_path: Path) -> None:
    made = experiment(name)
    fedfuse.run(made, tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        served(made, Ending(client_app(made), remembering(tmp_path)), tmp_path / "run")
    # Other node ids and contexts: everything was started again.
    nodes = {node + 1: config for node, config in remembering(tmp_path).items()}
    served(made, LocalGrid(client_app(made), nodes), tmp_path / "run", resume=True)
    assert bits_of(tmp_path / "run") == bits_of(tmp_path / "straight")
    assert rounds_of(tmp_path / "run") == rounds_of(tmp_path / "straight")


def test_a_node_that_has_lost_its_memory_says_so(tmp_path: Path) -> None:
    made = experiment("scaffold")
    with pytest.raises(KeyboardInterrupt):
        served(made, Ending(client_app(made), NODES), tmp_path / "run")
    served(made, LocalGrid(client_app(made), NODES), tmp_path / "run", resume=True)
    last = rounds_of(tmp_path / "run")[-1]
    assert set(last["rejected"]) == {"0", "1", "2"}
    assert "memory-dir" in last["rejected"]["0"]


def test_a_refused_answer_leaves_the_client_the_memory_it_had(tmp_path: Path) -> None:
    run = deployed(tmp_path, experiment("scaffold"))
    server, _ = run_round(run.algorithm, run.server, run.engine, [0, 1, 2], Vetting(), run.ctx)
    run.grid.tamper[NODE_OF[1]] = lambda asked, reply: [reply, reply]
    server, _ = run_round(run.algorithm, server, run.engine, [0, 1, 2], Vetting(), run.ctx.at(2))
    counts = {client: int(groups["at-node"]["round"]) for client, groups in run.engine.memory().items()}
    assert counts == {0: 2, 1: 1, 2: 2}


def test_a_run_begun_on_one_machine_is_not_taken_up(tmp_path: Path) -> None:
    run = deployed(tmp_path, experiment())
    with pytest.raises(fedfuse.FedfuseError, match="fedfuse run --resume"):
        run.engine.restore({0: {"control": {"w": torch.zeros(2)}}})


def test_a_round_below_its_quorum_is_asked_of_another_cohort(tmp_path: Path) -> None:
    """Two of three are drawn, two must answer, and one node always fails: some rounds need a second draw."""
    made = experiment(**{"run.fraction": 0.67, "run.quorum": 2, "run.retries": 5, "run.rounds": 4})
    grid = LocalGrid(client_app(made), NODES)
    grid.tamper[NODE_OF[0]] = lambda asked, reply: [reply, reply]
    served(made, grid, tmp_path / "run")
    rounds = rounds_of(tmp_path / "run")
    assert [r["cohort"] for r in rounds] == [[1, 2]] * 4
    assert all(r["note"] is None for r in rounds)
    excerpt = (tmp_path / "run" / "events.jsonl").read_text()
    assert "another cohort" in excerpt
    assert "client 0 answered more than once" in excerpt


def test_a_round_that_stays_below_its_quorum_changes_nothing(tmp_path: Path) -> None:
    made = experiment(**{"run.quorum": 3, "run.retries": 1, "run.rounds": 1})
    grid = LocalGrid(client_app(made), NODES)
    grid.tamper[NODE_OF[0]] = lambda asked, reply: [reply, reply]
    served(made, grid, tmp_path / "run")
    (record,) = rounds_of(tmp_path / "run")
    assert RoundRecord(**record, seconds={}).note == "unchanged: 2 of 3 clients, the quorum is 3"
    assert len([push for push in grid.pushes if push[0].metadata.group_id == "1"]) == 2
