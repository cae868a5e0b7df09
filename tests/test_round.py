"""One round: who is asked, what is counted, what is on record, and that a failure costs one update only."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedfuse.algorithms import fedavg, fedavgm
from fedfuse.context import Context
from fedfuse.engines import InProcess
from fedfuse.facts import Score
from fedfuse.round import run_round
from fedfuse.testing import all_bits, copied, tensors_of
from fedfuse.types import Failure, ServerState, Update
from fedfuse.vet import Vetting
from tests.doubles import Scripted, failing, initial, raises, runs_out_of_memory, sends_no_number


def answer(client: int, server: ServerState, shift: float, examples: int = 1) -> Update:
    model = copied(server.models["mlp:8"])
    return Update(client, examples, replace(model, params={n: t + shift for n, t in model.params.items()}))


def test_the_cohort_is_asked_once_each_with_the_servers_model(ctx: Context, server: ServerState) -> None:
    engine = Scripted([answer(client, server, 0.0) for client in (1, 3)])
    run_round(fedavg(), server, engine, [1, 3], Vetting(), ctx)
    assert [(task.client, task.round) for task in engine.asked] == [(1, 1), (3, 1)]
    assert all(task.model is server.models["mlp:8"] for task in engine.asked)


def test_numbers_and_bytes_are_those_that_travelled(ctx: Context, server: ServerState) -> None:
    # mlp:8 on 4 features and 3 classes: 4 x 8 + 8 + 8 x 3 + 3 = 67 numbers of 4 bytes. Three asked, two answered.
    engine = Scripted([answer(0, server, 0.0), Failure(1, "gone"), answer(2, server, 0.0)])
    _, record = run_round(fedavg(), server, engine, [0, 1, 2], Vetting(), ctx)
    assert (record.params_down, record.bytes_down) == (3 * 67, 3 * 67 * 4)
    assert (record.params_up, record.bytes_up) == (2 * 67, 2 * 67 * 4)


def test_the_record_has_the_scores_of_the_fused_model(ctx: Context, server: ServerState) -> None:
    fused, record = run_round(fedavg(), server, InProcess(), [0, 1, 2, 3], Vetting(), ctx)
    net = ctx.nets.load(fused.models["mlp:8"]).eval()
    test = ctx.data.test
    with torch.no_grad():
        logits = net(test.batch(torch.arange(len(test))))
    assert record.test_accuracy == (logits.argmax(1) == test.y).double().mean().item()
    assert record.test_loss == pytest.approx(torch.nn.functional.cross_entropy(logits, test.y).item(), rel=1e-5)
    assert record.models == {"mlp:8": Score(record.test_accuracy, record.test_loss)}
    assert (record.round, record.cohort, record.rejected, record.note) == (1, [0, 1, 2, 3], {}, None)
    assert {"local", "fuse", "evaluate"} <= record.seconds.keys()
    assert all(seconds >= 0 for seconds in record.seconds.values())


def test_with_two_architectures_the_score_is_their_mean(ctx: Context) -> None:
    ctx = replace(ctx, archs=("mlp:8", "mlp:6") * 2)
    _, record = run_round(fedavg(), initial(ctx), InProcess(), [0, 1, 2, 3], Vetting(), ctx)
    assert record.test_accuracy == pytest.approx(sum(m.accuracy for m in record.models.values()) / 2)
    assert list(record.models) == ["mlp:8", "mlp:6"]


def test_each_answer_is_announced(ctx: Context, server: ServerState) -> None:
    answers: list[int] = []
    engine = Scripted([answer(0, server, 0.0), Failure(1, "gone")])
    run_round(fedavg(), server, engine, [0, 1], Vetting(), ctx, answers.append)
    assert answers == [0, 1]


def test_clients_that_fail_cost_their_own_update_only(ctx: Context, server: ServerState) -> None:
    algorithm = failing({0: raises, 1: runs_out_of_memory, 2: sends_no_number})
    fused, record = run_round(algorithm, server, InProcess(), [0, 1, 2, 3], Vetting(), ctx)
    assert record.rejected == {
        "0": "failed in its local work: ValueError: round 1 was too much",
        "1": "ran out of memory in its local work",
        "2": "parameter trunk.1.weight is not finite",
    }
    alone, _ = run_round(fedavg(), server, InProcess(), [3], Vetting(), ctx)
    assert all_bits(fused.models) == all_bits(alone.models)


@pytest.mark.parametrize("algorithm", [fedavg(), fedavgm()], ids=lambda a: a.name)
def test_below_the_quorum_the_model_stays_as_it_was_and_the_record_says_so(
    algorithm: object, ctx: Context, server: ServerState
) -> None:
    memory = {"velocity/mlp:8": {n: torch.ones_like(t) for n, t in server.models["mlp:8"].params.items()}}
    server = replace(server, round=4, memory=memory)
    before = all_bits(server.models)
    engine = Scripted([answer(0, server, 1.0), Failure(1, "gone"), Failure(2, "gone")])
    fused, record = run_round(algorithm, server, engine, [0, 1, 2], Vetting(quorum=2), ctx)  # type: ignore[arg-type]
    assert all_bits(fused.models) == before
    assert fused.memory is memory
    assert (fused.round, record.round) == (5, 5)  # it was a round, and it is on record
    assert record.note == "unchanged: 1 of 3 clients, the quorum is 2"
    assert record.rejected == {"1": "gone", "2": "gone"}
    assert engine.settled == ()  # nor does any client remember it


def test_a_round_in_which_nobody_answers_is_below_any_quorum(ctx: Context, server: ServerState) -> None:
    engine = Scripted([Failure(client, "gone") for client in (0, 1)])
    fused, record = run_round(fedavg(), server, engine, [0, 1], Vetting(), ctx)
    assert all_bits(fused.models) == all_bits(server.models)
    assert record.note is not None


def test_at_the_quorum_the_model_moves(ctx: Context, server: ServerState) -> None:
    engine = Scripted([answer(0, server, 1.0), answer(1, server, 3.0, examples=3), Failure(2, "gone")])
    fused, record = run_round(fedavg(), server, engine, [0, 1, 2], Vetting(quorum=2), ctx)
    assert record.note is None
    moved = tensors_of(fused.models["mlp:8"])
    for name, tensor in tensors_of(server.models["mlp:8"]).items():
        torch.testing.assert_close(moved[name], tensor + 2.5)  # (1 x 1 + 3 x 3) / 4
    assert engine.settled == (0, 1)
