"""Clients that join and leave between rounds, and whose data changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Context, Message, RecordDict

from fedfuse import tree
from fedfuse.algorithms.scaffold.server import MEMBERS, with_newcomers
from fedfuse.config.experiment import Experiment
from fedfuse.context import Context as RunContext
from fedfuse.flower import Deployment, client_app
from fedfuse.flower.members import with_members
from fedfuse.flower.server import serve
from fedfuse.runs.setup import load_federation, set_up
from fedfuse.types import ServerState
from tests.command_line import CommandLine, rounds_of
from tests.flower.federations import CLIENTS, NODES, bits_of, experiment
from tests.flower.grid import LocalGrid

Config = dict[str, int | float | str]
LATE = 77  # the node that comes late
Rows = Callable[[Context], int]


class Changing(LocalGrid):
    """Nodes come, go and change before a round: `before` is called when the server looks who is online."""

    round = 1  # the one that is next

    def __init__(self, made: Experiment, before: Callable[[Changing], None], rows: Rows = lambda context: 20) -> None:
        super().__init__(client_app(made, data=own_data(rows)), NODES)
        self.before = before

    def get_node_ids(self) -> Iterable[int]:
        self.before(self)
        return super().get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        pushed = list(messages)
        self.round = max([self.round, *(1 + int(m.metadata.group_id) for m in pushed if m.metadata.group_id)])
        return super().push_messages(pushed)

    def comes(self, config: Config) -> None:
        self.contexts.setdefault(LATE, Context(0, LATE, config, RecordDict(), {}))


def own_data(rows: Rows) -> Callable[[Context], tuple[torch.Tensor, torch.Tensor]]:
    """Each node has some rows of the experiment's training data, from its number on."""
    train = load_federation(experiment()).train
    assert isinstance(train.x, torch.Tensor)

    def own(context: Context) -> tuple[torch.Tensor, torch.Tensor]:
        places = (torch.arange(rows(context)) + 7 * int(context.node_config.get("partition-id", 5))) % len(train)
        return train.x[places], train.y[places]

    return own


def served(grid: Changing, made: Experiment, out: Path, **settings: Any) -> list[dict[str, Any]]:
    serve(made, grid, Deployment(str(out), wait=0.0, **settings))
    return rounds_of(out)


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "moon", "feddf", "fedgkt"])
def test_a_node_that_comes_late_takes_part_leaves_and_comes_back(name: str, tmp_path: Path, cli: CommandLine) -> None:
    made = experiment(name, **{"run.rounds": 4})

    def before(grid: Changing) -> None:
        if grid.round in (2, 4):
            grid.comes({"partition-id": 9, "name": "late", "memory-dir": str(tmp_path / "memory")})
        else:
            grid.contexts.pop(LATE, None)

    records = served(Changing(made, before), made, tmp_path / "run")
    assert [record["cohort"] for record in records] == [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2], [0, 1, 2, 3]]
    assert [record["rejected"] for record in records] == [{}] * 4
    roster = json.loads((tmp_path / "run" / "flower.json").read_text())
    assert (roster["joined"], roster["names"]) == ([9], {"3": "late"})
    if name == "fedavg":
        assert cli.here("report", tmp_path / "run").code == 0
        assert "client 3 joined" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_a_run_with_a_client_that_joined_can_be_resumed(tmp_path: Path) -> None:
    """To the bits of a run that was not stopped; the node has another id after it, and declares itself as before."""
    made = experiment("scaffold", **{"run.rounds": 4})
    late: Config = {"partition-id": 9, "memory-dir": str(tmp_path / "late")}

    def grid(folder: str, last: int) -> Changing:
        def before(grid: Changing) -> None:
            if grid.round > last:
                raise KeyboardInterrupt
            if grid.round >= 2:
                grid.comes(late | {"memory-dir": str(tmp_path / folder)})

        made_grid = Changing(made, before)
        for node, context in made_grid.contexts.items():
            context.node_config["memory-dir"] = str(tmp_path / folder / str(node))
        return made_grid

    served(grid("a", 9), made, tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        served(grid("b", 3), made, tmp_path / "stopped")
    again = grid("b", 9)
    again.round = 4
    served(again, made, tmp_path / "stopped", resume=True)
    assert bits_of(tmp_path / "stopped") == bits_of(tmp_path / "straight")
    assert rounds_of(tmp_path / "stopped") == rounds_of(tmp_path / "straight")


def test_a_node_that_declares_no_number_takes_nobodys_place(tmp_path: Path) -> None:
    def before(grid: Changing) -> None:
        if grid.round == 2:
            grid.contexts.pop(50, None)
            grid.comes({})

    made = experiment(**{"run.rounds": 2})
    records = served(Changing(made, before), made, tmp_path / "run")
    assert [record["cohort"] for record in records] == [[0, 1, 2], [0, 1, 3]]


def test_a_round_without_nodes_changes_nothing_and_the_next_goes_on(tmp_path: Path) -> None:
    made = experiment(**{"run.rounds": 3})
    gone: dict[int, Context] = {}
    looks: list[int] = []

    def before(grid: Changing) -> None:
        looks.append(grid.round)
        if grid.round == 2 and looks.count(2) == 1:
            gone.update(grid.contexts)
            grid.contexts.clear()
        elif looks.count(2) > 2:  # the round itself looks twice
            grid.contexts.update(gone)

    records = served(Changing(made, before), made, tmp_path / "run")
    assert [record["cohort"] for record in records] == [[0, 1, 2], [], [0, 1, 2]]
    assert "the quorum is 1" in records[1]["note"]


def test_the_number_of_examples_follows_the_nodes_data(tmp_path: Path) -> None:
    """Fed-ET draws in proportion to size: whoever has nearly all examples is drawn, from the round after it said so."""
    made = experiment("fed-et", **{"run.rounds": 4, "run.fraction": 0.3})
    sizes = {0: 2000, 1: 1, 2: 1}

    def rows(context: Context) -> int:
        return sizes[int(context.node_config["partition-id"])]

    def before(grid: Changing) -> None:
        if grid.round == 3:
            sizes.update({0: 1})

    grid = Changing(made, before, rows)
    records = served(grid, made, tmp_path / "run")
    assert [record["cohort"] for record in records[:3]] == [[0]] * 3  # told when it was first asked
    assert [record["clients"]["0"]["examples"] for record in records[:3]] == [2000, 2000, 1]


def test_fedgkt_drops_logits_of_examples_that_a_client_no_longer_has(tmp_path: Path) -> None:
    made = experiment("fedgkt", **{"run.rounds": 3})
    sizes = {1: 13, 2: 20, 3: 20}
    grid = Changing(made, lambda grid: None, lambda context: sizes[min(grid.round - 1, 3) or 1])
    records = served(grid, made, tmp_path / "run")
    assert [record["rejected"] for record in records] == [{}] * 3
    assert [record["clients"]["0"]["examples"] for record in records] == [13, 20, 20]


@pytest.fixture(scope="module")
def ctx() -> RunContext:
    made = experiment(**{"models.clients": {"mlp:4": 1, "mlp:6": 1, "mlp:8": 1}})
    return set_up(made, load_federation(made)).ctx


def test_newcomers_repeat_the_assignment_of_architectures(ctx: RunContext) -> None:
    more = with_members(ctx, 4, {}, {3: 7})
    assert more.archs == (*ctx.archs, *ctx.archs, ctx.archs[0])
    assert more.sizes[:4] == (*ctx.data.sizes, 7)
    assert more.sizes[4] == round((sum(ctx.data.sizes) + 7) / 4)
    assert with_members(ctx, 0, {}, {}).sizes == ctx.data.sizes


@pytest.mark.parametrize(("capability", "like"), [(0.5, 1), (2.5, 0), (9.0, 2), (3.0, 2)])
def test_newcomers_with_a_capability_are_like_those_that_can_as_much(
    capability: float, like: int, ctx: RunContext
) -> None:
    more = with_members(ctx, 1, {0: 2.0, 1: 1.0, 2: 3.0, 3: capability}, {})
    assert more.archs[CLIENTS] == ctx.archs[like]


def test_scaffolds_control_variate_stays_the_mean_over_all_clients(ctx: RunContext) -> None:
    """Three clients have the mean c = 2; a fourth of the same architecture has c_i = 0: the mean is 3/4 of 2."""
    alike = with_members(replace(ctx, archs=("a", "a", "a")), 1, {}, {})
    server = ServerState(1, {})
    control = {"w": torch.tensor([2.0])}
    assert with_newcomers(control, server, (1, 1, 1, 1), "a", alike)["w"].tolist() == [1.5]
    known = ServerState(1, {}, {MEMBERS: {"count": torch.tensor(4)}})
    assert tree.equal(with_newcomers(control, known, (1, 1, 1, 1), "a", alike), control)
