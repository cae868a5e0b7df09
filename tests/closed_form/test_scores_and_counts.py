"""What is measured: accuracy, loss, numbers sent, seconds, distances."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from fedfuse import tree
from fedfuse.data.examples import Examples
from fedfuse.evaluate import evaluate
from fedfuse.records.clock import Clock
from fedfuse.records.record import RoundRecord
from fedfuse.records.statistics import Row, spread
from fedfuse.runs.run import Run


def test_accuracy_and_loss_of_three_answers_by_hand() -> None:
    # Logits (2x, 0) for x = 1, -1, 1 of classes 0, 0, 1: right, wrong, wrong.
    net = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[2.0], [0.0]]))
    x = torch.tensor([[1.0], [-1.0], [1.0]])
    data = Examples(x, torch.tensor([0, 0, 1]), 2, torch.zeros(1), torch.ones(1))
    score = evaluate(net, data, batch_size=2)  # the last batch is smaller: a mean of means would be wrong
    assert score.accuracy == pytest.approx(1 / 3)
    assert score.loss == pytest.approx((math.log1p(math.exp(-2)) + 2 * math.log1p(math.exp(2))) / 3)


def test_evaluation_neither_changes_the_net_nor_its_mode() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).train()
    before = {name: t.clone() for name, t in net.state_dict().items()}
    data = Examples(torch.randn(8, 2), torch.zeros(8, dtype=torch.long), 2, torch.zeros(2), torch.ones(2))
    evaluate(net, data)
    assert net.training
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())


def test_numbers_bytes_and_distance_of_a_tree() -> None:
    a = {"w": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "n": torch.tensor(5), "h": torch.zeros(3, dtype=torch.float16)}
    b = {"w": torch.tensor([[1.0, 0.0], [3.0, 1.0]]), "n": torch.tensor(9), "h": torch.ones(3, dtype=torch.float16)}
    assert tree.count(a) == 4 + 1 + 3
    assert tree.nbytes(a) == 4 * 4 + 8 + 3 * 2
    assert tree.squared_distance(a, b) == 2**2 + 3**2 + 3  # counters are no part of it
    assert tree.subtract(a, b)["w"].tolist() == [[0.0, 2.0], [0.0, 3.0]]
    assert tree.add_scaled({"w": a["w"]}, -2.0, b)["w"].tolist() == [[-1.0, 2.0], [-3.0, 2.0]]


def test_an_inner_stage_is_not_counted_in_the_outer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # The clock reads 0, 1, 4, 10: the outer stage took 10, of which 3 were the inner one's.
    ticks = iter([0.0, 1.0, 4.0, 10.0])
    monkeypatch.setattr("fedfuse.records.clock.perf_counter", lambda: next(ticks))
    clock = Clock()
    with clock.stage("fuse"), clock.stage("local"):
        pass
    assert clock.seconds == {"local": 3.0, "fuse": 7.0}


def a_run(accuracies: list[float | None], sent: int = 100) -> Run:
    history = [
        RoundRecord(n, [0], a, 1.0, {"m": {"accuracy": a, "loss": 1.0}}, sent, sent, 4 * sent, 4 * sent, {"local": 2.0})
        for n, a in enumerate(accuracies, 1)
    ]
    return Run(path=None, history=history, models={})  # type: ignore[arg-type]


def test_a_comparison_counts_rounds_and_parameters_to_a_target() -> None:
    # Seed 1 reaches 0.8 in round 2, seed 2 in round 3: 2.5 rounds; 400 and 600 parameters, up and down: 500.
    row = Row("fedavg", [a_run([0.5, 0.8, 0.9]), a_run([0.1, 0.2, 0.8])])
    assert (row.rounds_to(0.8), row.parameters_to(0.8)) == ("2.5", "500")
    assert row.best == [0.9, 0.8]
    assert row.mean_over_rounds == pytest.approx([2.2 / 3, 1.1 / 3])
    assert row.seconds == 12.0
    # A seed that never got there is not left out of the mean: the number is censored.
    assert (row.rounds_to(0.85), row.parameters_to(0.85)) == ("> 3", "> 600")


def test_only_evaluated_rounds_have_an_accuracy_to_count() -> None:
    # Round 3 may have been above 0.8, but nobody looked: round 4 is the first that is known to be.
    row = Row("fedavg", [a_run([None, 0.5, None, 0.9, None])])
    assert (row.best, row.final, row.mean_over_rounds) == ([0.9], [0.9], [0.7])
    assert (row.rounds_to(0.8), row.parameters_to(0.8)) == ("4", "800")
    assert (row.rounds_to(0.95), row.parameters_to(0.95)) == ("> 4", "> 800")  # of round 5 nothing is known
    assert row.runs[0].best.round == 4  # type: ignore[attr-defined]


def test_spread_is_mean_and_sample_deviation_in_percent() -> None:
    assert spread([0.5]) == "50.00"
    assert spread([0.5, 0.7]) == "60.00 ± 14.14"  # sqrt(2 x 0.1^2 / 1)
