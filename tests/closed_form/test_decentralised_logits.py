"""Decentralised fusion by logits: neighbours and labels by hand, no model at the server, scores of the clients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedfuse.algorithm import Algorithm, check_parts
from fedfuse.algorithms import decentralised_logits
from fedfuse.algorithms.decentralised_logits.client import ACCURACY, LOSS, VALIDATION
from fedfuse.algorithms.decentralised_logits.relay import EXCHANGE, SCORES, TABLES
from fedfuse.algorithms.decentralised_logits.topology import Complete, RandomNeighbours, Ring, Topology
from fedfuse.algorithms.ds_fl.server import GLOBAL, PREDICTED
from fedfuse.context import Context
from fedfuse.engines import InProcess
from fedfuse.evaluate import evaluate
from fedfuse.fusion import MeanLogits
from fedfuse.local.own_model import own_model
from fedfuse.records.record import RoundRecord
from fedfuse.round import run_round
from fedfuse.types import FedfuseError, ServerState, Update
from fedfuse.vet import Vetting
from tests.doubles import Scripted, blobs, context

ROWS = 64
DRAW = torch.Generator


def small(**settings: object) -> Algorithm:
    return decentralised_logits(**{"rows": ROWS, "epochs": 1, "batch_size": 32, **settings})  # type: ignore[arg-type]


def alike(*row: float) -> Tensor:
    """The same numbers for each public example (64, 3)."""
    return torch.tensor([row]).repeat(ROWS, 1)


def predicted(client: int, *row: float, accuracy: float = 0.5) -> Update:
    metrics = {ACCURACY: accuracy, LOSS: 1.0, VALIDATION: 0.25}
    return Update(client, 10, None, {PREDICTED: {"probs": alike(*row)}}, metrics)


def empty(ctx: Context) -> ServerState:
    """The state of a server that holds no model."""
    return ServerState(0, replace(ctx, small_models=False).initial())


def without_models(**settings: object) -> Context:
    return replace(context(**settings), small_models=False)  # type: ignore[arg-type]


def scripted(
    answers: list[Update], algorithm: Algorithm, ctx: Context, server: ServerState | None = None
) -> tuple[ServerState, RoundRecord]:
    cohort = [answer.client for answer in answers]
    return run_round(algorithm, server or empty(ctx), Scripted(answers), cohort, Vetting(), ctx)


@pytest.mark.parametrize(
    ("topology", "client", "others", "expected"),
    [
        (Ring(), 2, [0, 1, 3, 4], [1, 3]),
        (Ring(), 0, [1, 2, 3, 4], [1, 4]),
        (Ring(), 4, [0, 1, 2, 3], [0, 3]),
        (Ring(), 5, [0, 4, 7, 9], [4, 7]),  # where it would stand, if it did not take part in the last round
        (Ring(reach=2), 3, [0, 1, 2, 4, 5, 6], [1, 2, 4, 5]),
        (Ring(), 1, [0, 2], [0, 2]),
        (Ring(reach=2), 1, [0, 2, 3], [0, 2, 3]),
        (Ring(), 1, [], []),
        (Complete(), 1, [0, 5, 7], [0, 5, 7]),
        (RandomNeighbours(5), 1, [0, 5, 7], [0, 5, 7]),
    ],
)
def test_neighbours_by_hand(topology: Topology, client: int, others: list[int], expected: list[int]) -> None:
    assert topology(client, others, DRAW().manual_seed(0)) == expected


def test_random_neighbours_are_drawn_by_the_generator() -> None:
    others, topology = list(range(1, 50)), RandomNeighbours(3)
    draws = [topology(0, others, DRAW().manual_seed(seed)) for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    assert len(set(draws[0])) == 3
    assert draws[0] == sorted(draws[0])


def test_labels_are_the_softmax_of_the_mean_logits_of_neighbours_and_own() -> None:
    """Of four clients in a ring, 0 has the neighbours 1 and 3. Log probabilities are logits up to a constant."""
    ctx, algorithm = without_models(), small()
    logits = torch.tensor([[1.0, 2.0, 0.0], [0.0, -1.0, 1.0], [9.0, 0.0, 0.0], [2.0, 2.0, -1.0]])
    rows = torch.softmax(logits, 1).tolist()
    server, record = scripted([predicted(k, *row) for k, row in enumerate(rows)], algorithm, ctx)
    assert record.facts.teachers == 4
    assert int(server.memory[EXCHANGE]["round"]) == 1
    expected = {0: [0, 1, 3], 1: [0, 1, 2], 2: [1, 2, 3], 3: [0, 2, 3]}
    for client, teachers in expected.items():
        task = algorithm.brief(server, client, ctx.at(2))
        assert task.model is None
        assert int(task.extra[GLOBAL]["round"]) == 1
        label = torch.softmax(logits[teachers].mean(0), 0)
        torch.testing.assert_close(task.extra[GLOBAL]["probs"], label.repeat(ROWS, 1), rtol=2e-3, atol=1e-4)  # halves


def test_who_was_not_in_the_last_round_learns_from_its_neighbours_alone() -> None:
    ctx, algorithm = without_models(), small(topology=Complete())
    server, _ = scripted([predicted(1, 0.5, 0.25, 0.25), predicted(3, 0.25, 0.5, 0.25)], algorithm, ctx)
    labels = algorithm.brief(server, 0, ctx.at(2)).extra[GLOBAL]["probs"]
    same = algorithm.brief(server, 1, ctx.at(2)).extra[GLOBAL]["probs"]
    # sqrt(1/8), sqrt(1/8) and 1/4, over their sum.
    root = 0.125**0.5
    torch.testing.assert_close(labels[0], torch.tensor([root, root, 0.25]) / (2 * root + 0.25), rtol=2e-3, atol=0)
    assert torch.equal(labels, same)


def test_only_the_tables_of_the_last_round_teach() -> None:
    ctx, algorithm = without_models(), small(topology=Complete())
    server, _ = scripted([predicted(0, 0.8, 0.1, 0.1)], algorithm, ctx)
    server, _ = scripted([predicted(1, 0.1, 0.8, 0.1)], algorithm, ctx.at(2), server)
    assert server.memory[TABLES].keys() == {"1"}
    assert server.memory[SCORES].keys() == {"0", "1"}


def test_no_weights_travel_and_the_server_has_none() -> None:
    ctx, algorithm, engine = without_models(), small(), InProcess()
    server, first = run_round(algorithm, empty(ctx), engine, [0, 1, 2], Vetting(), ctx)
    server, second = run_round(algorithm, server, engine, [1, 2, 3], Vetting(), ctx.at(2))
    assert server.models == {}
    assert (first.params_down, first.params_up) == (0, 3 * ROWS * 3)
    assert (second.params_down, second.params_up) == (3 * (ROWS * 3 + 1), 3 * ROWS * 3)  # and the labels' round


def test_the_accuracy_is_the_mean_over_the_models_that_clients_have() -> None:
    ctx, algorithm, engine = without_models(), small(), InProcess()
    server, _ = run_round(algorithm, empty(ctx), engine, [0, 1, 2], Vetting(), ctx)
    server, record = run_round(algorithm, server, engine, [1, 2], Vetting(), ctx.at(2))
    # Client 0 still has its model of round 1, client 3 the initial one.
    nets = [ctx.nets.load(own_model(k, engine.memory().get(k, {}), ctx), f"{k}") for k in range(4)]
    scores = [evaluate(net, ctx.data.test) for net in nets]
    assert record.test_accuracy == pytest.approx(sum(score.accuracy for score in scores) / 4)
    assert record.test_loss == pytest.approx(sum(score.loss for score in scores) / 4)
    validation = [evaluate(net, ctx.data.validation).accuracy for net in nets]
    assert record.validation_accuracy == pytest.approx(sum(validation) / 4)
    assert record.models["mlp:8"].accuracy == record.test_accuracy
    assert len({round(score.accuracy, 6) for score in scores}) > 1


def test_a_round_below_its_quorum_leaves_scores_and_tables() -> None:
    ctx, algorithm, engine = without_models(), small(), InProcess()
    server, before = run_round(algorithm, empty(ctx), engine, [0, 1], Vetting(), ctx)
    after, record = run_round(algorithm, server, engine, [2], Vetting(quorum=2), ctx.at(2))
    assert record.note is not None
    assert record.test_accuracy == before.test_accuracy
    assert after.memory == server.memory


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (predicted(1, 0.9, 0.9, 0.9), "differs from 1 by"),
        (predicted(1, 0.5, 0.3, 0.2, accuracy=1.5), "test_accuracy = 1.5, which cannot be"),
        (replace(predicted(1, 0.5, 0.3, 0.2), metrics={}), "test_accuracy = nan, which cannot be"),
    ],
)
def test_what_cannot_be_is_left_out(answer: Update, reason: str) -> None:
    ctx = without_models()
    server, record = scripted([predicted(0, 0.5, 0.3, 0.2), answer], small(), ctx)
    assert reason in record.facts.dropped["1"]
    assert server.memory[TABLES].keys() == server.memory[SCORES].keys() == {"0"}
    kept, record = scripted([answer], small(), ctx.at(2), server)
    assert kept.memory == server.memory
    assert record.facts.warning == "no client sent predictions: the last ones stay"


def test_the_order_of_arrival_changes_nothing() -> None:
    ctx, algorithm = without_models(), small()
    answers = [predicted(k, *row) for k, row in enumerate([(0.5, 0.3, 0.2), (0.1, 0.1, 0.8), (0.2, 0.7, 0.1)])]
    one, _ = algorithm.fuse(empty(ctx), answers, ctx)
    other, _ = algorithm.fuse(empty(ctx), answers[::-1], ctx)
    for group in (TABLES, SCORES):
        assert list(one.memory[group]) == list(other.memory[group])
        assert all(torch.equal(t, other.memory[group][name]) for name, t in one.memory[group].items())


def test_neighbours_teach_each_other_what_they_lack() -> None:
    """Of four clients, two have no example of class 2: with neighbours they learn it, alone they cannot."""
    ctx = without_models(epochs=5)
    train = ctx.data.train
    lacking = tuple(part[train.y[part] != 2] if k in (0, 1) else part for k, part in enumerate(ctx.data.parts))
    ctx = replace(ctx, data=replace(ctx.data, parts=lacking, test=blobs(300, 9)), rounds=5)

    def recall(topology: Topology) -> float:
        algorithm, engine = small(topology=topology, epochs=20, rows=256), InProcess()
        server = empty(ctx)
        for number in range(1, 6):
            server, _ = run_round(algorithm, server, engine, [0, 1, 2, 3], Vetting(), ctx.at(number))
        net = ctx.nets.load(own_model(0, engine.memory()[0], ctx)).eval()
        rows = (ctx.data.test.y == 2).nonzero().squeeze(1)
        with torch.no_grad():
            return float((net(ctx.data.test.batch(rows)).argmax(1) == 2).double().mean())

    assert recall(_Alone()) == 0
    assert recall(Complete()) > 0.2


class _Alone:
    """No one has a neighbour."""

    def __call__(self, client: int, others: list[int], rng: torch.Generator) -> list[int]:
        return []


def test_errors() -> None:
    for wrong in (lambda: Ring(reach=0), lambda: RandomNeighbours(count=0)):
        with pytest.raises(FedfuseError, match="0"):
            wrong()
    ctx = without_models()
    check_parts(small(), ctx)
    with pytest.raises(FedfuseError, match=r"set data\.pool"):
        check_parts(small(), replace(ctx, data=replace(ctx.data, pool=None)))
    nothing = ctx.data.test.subset(torch.arange(0))
    untested = replace(ctx, data=replace(ctx.data, test=nothing))
    algorithm = small(target=MeanLogits())
    task = algorithm.brief(empty(ctx), 2, ctx)
    with pytest.raises(FedfuseError, match=r"client 2 has no test data.*in a simulation"):
        algorithm.local(task, {}, untested)
