"""Clients in threads: the bits of one after the other, whatever their layers draw."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from threading import current_thread, get_ident

import pytest
import torch
from torch import nn

from fedfuse.algorithms import ALGORITHMS, fedavg
from fedfuse.context import Context
from fedfuse.engines import InProcess, InThreads
from fedfuse.engines import in_threads as module
from fedfuse.round import run_round
from fedfuse.testing import all_bits
from fedfuse.types import FedfuseError, Groups, ServerState, Task, Update
from fedfuse.vet import Vetting
from tests.doubles import DROPPING, LINEAR, NORMED, Failing, brief, context, initial, raises


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[InThreads]:
    """An engine that takes any work to be worth a thread, after its first client."""
    monkeypatch.setattr(module, "WORTH_A_LANE", 0.0)
    engine = InThreads(3)
    yield engine
    engine.close()


def after(rounds: int, engine: InProcess | InThreads, name: str, archs: tuple[str, ...]) -> object:
    ctx, server, algorithm = context(archs, rounds=rounds), None, brief(name)
    server = initial(ctx)
    for number in range(1, rounds + 1):
        server, record = run_round(algorithm, server, engine, list(range(len(archs))), Vetting(), ctx.at(number))
        assert not record.rejected
    return all_bits(server.models)


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "moon", "feddf"])
@pytest.mark.parametrize("arch", [NORMED, DROPPING])
def test_the_bits_are_those_of_one_after_the_other(threads: InThreads, name: str, arch: str) -> None:
    assert after(3, threads, name, (arch,) * 6) == after(3, InProcess(), name, (arch,) * 6)


def test_clients_whose_layers_draw_and_those_whose_do_not_mix(threads: InThreads) -> None:
    archs = (DROPPING, NORMED, LINEAR, DROPPING, NORMED, LINEAR, DROPPING)
    assert after(3, threads, "fedavg", archs) == after(3, InProcess(), "fedavg", archs)


def test_several_threads_work_and_answers_come_in_order(threads: InThreads) -> None:
    ctx, idents = context((LINEAR,) * 9), set[int]()

    def work(task: Task, memory: Groups, ctx: Context) -> Update:
        idents.add(get_ident())
        torch.ones(400, 400) @ torch.ones(400, 400)
        return ALGORITHMS["fedavg"]().local(task, memory, ctx)

    algorithm = replace(fedavg(), local=work)
    server = initial(ctx)
    tasks = (algorithm.brief(server, client, ctx) for client in range(9))
    assert [answer.client for answer in threads.run(algorithm, tasks, ctx)] == list(range(9))
    assert len(idents) > 1


def test_short_work_stays_in_this_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORTH_A_LANE", 60.0)
    names: list[str] = []
    train = fedavg().local

    def work(task: Task, memory: Groups, ctx: Context) -> Update:
        names.append(current_thread().name)
        return train(task, memory, ctx)

    ctx, engine = context((LINEAR,) * 4), InThreads(2)
    run_round(replace(fedavg(), local=work), initial(ctx), engine, [0, 1, 2, 3], Vetting(), ctx)
    engine.close()
    assert set(names) == {current_thread().name}


def test_a_client_that_fails_costs_itself(threads: InThreads) -> None:
    ctx = context((LINEAR,) * 4)
    algorithm = replace(fedavg(), local=Failing({2: raises}))
    _, record = run_round(algorithm, initial(ctx), threads, [0, 1, 2, 3], Vetting(), ctx)
    assert list(record.rejected) == ["2"]
    assert "was too much" in record.rejected["2"]


class LateDropout(nn.Module):
    """Draws from the second round on: what no first look can tell."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, classes)
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.batches += 1
        return self.layer(torch.dropout(x, 0.5, self.training and bool(self.batches > 20)))


def late(classes: int, shape: tuple[int, ...]) -> nn.Module:
    return LateDropout(shape[0], classes)


def test_a_net_that_begins_to_draw_later_is_an_error_and_not_another_result(threads: InThreads) -> None:
    ctx = context((f"{__name__}:late",) * 4, epochs=5)
    server, algorithm = ServerState(0, ctx.initial()), fedavg()

    def rounds() -> None:
        state = server
        for number in range(1, 6):
            state, _ = run_round(algorithm, state, threads, [0, 1, 2, 3], Vetting(), ctx.at(number))

    with pytest.raises(FedfuseError, match=r"run\.workers = 1"):
        rounds()
