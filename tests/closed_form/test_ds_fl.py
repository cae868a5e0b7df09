"""DS-FL: labels by hand, no weights on the wire, models that stay with their clients, answers that are not believed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor

from fedfuse.algorithm import Algorithm
from fedfuse.algorithms import ds_fl
from fedfuse.algorithms.ds_fl.server import GLOBAL, PREDICTED, PublicRows
from fedfuse.context import Context, FreshPool
from fedfuse.engines import InProcess
from fedfuse.fusion import MeanProbs
from fedfuse.local.own_model import OWN
from fedfuse.records.record import RoundRecord
from fedfuse.round import run_round
from fedfuse.testing import all_bits
from fedfuse.types import Failure, FedfuseError, Groups, ServerState, Task, Update
from fedfuse.vet import Vetting
from tests.doubles import LINEAR, Scripted, blobs, context, initial

ROWS = 64


def small(**settings: object) -> Algorithm:
    return ds_fl(**{"rows": ROWS, "epochs": 1, "batch_size": 32, **settings})  # type: ignore[arg-type]


@dataclass
class Watched:
    """An engine of this process that remembers what went by."""

    tasks: list[Task] = field(default_factory=list)
    updates: list[Update | Failure] = field(default_factory=list)
    engine: InProcess = field(default_factory=InProcess)

    def run(
        self, algorithm: Algorithm, tasks: Iterable[Task], ctx: Context, server: ServerState | None = None
    ) -> Iterator[Update | Failure]:
        for answer in self.engine.run(algorithm, self._seen(tasks), ctx, server):
            self.updates.append(answer)
            yield answer

    def _seen(self, tasks: Iterable[Task]) -> Iterator[Task]:
        for task in tasks:
            self.tasks.append(task)
            yield task

    def present(self, ctx: Context, claimed: Mapping[int, int]) -> tuple[Context, Sequence[int]]:
        return self.engine.present(ctx, claimed)

    def settle(self, accepted: Collection[int]) -> None:
        self.engine.settle(accepted)

    def memory(self) -> Mapping[int, Groups]:
        return self.engine.memory()

    def restore(self, memory: Mapping[int, Groups]) -> None:
        self.engine.restore(memory)

    def peak_memory(self) -> int:
        return 0

    def close(self) -> None:
        pass


def predicted(client: int, probs: Tensor) -> Update:
    return Update(client, 10, None, {PREDICTED: {"probs": probs}})


def scripted(
    answers: list[Update], algorithm: Algorithm, ctx: Context, server: ServerState | None = None
) -> tuple[ServerState, RoundRecord]:
    return run_round(algorithm, server or initial(ctx), Scripted(answers), [0, 1, 2, 3], Vetting(), ctx)


def alike(*row: float) -> Tensor:
    """The same probabilities for each public example (64, 3)."""
    return torch.tensor([row]).repeat(ROWS, 1)


def test_the_labels_are_the_sharpened_mean() -> None:
    ctx = context()
    fused, record = scripted([predicted(0, alike(0.5, 0.3, 0.2)), predicted(1, alike(0.3, 0.5, 0.2))], small(), ctx)
    # The mean is (0.4, 0.4, 0.2): e^4, e^4 and e^2 over their sum.
    total = 2 * math.exp(4) + math.exp(2)
    expected = alike(math.exp(4) / total, math.exp(4) / total, math.exp(2) / total)
    torch.testing.assert_close(fused.memory[GLOBAL]["probs"], expected)
    assert int(fused.memory[GLOBAL]["round"]) == 1
    assert record.facts.teachers == 2
    assert record.facts.own["rows"] == ROWS
    assert record.facts.ensemble.disagreement == 1  # the two predict 0 and 1
    p = [math.exp(4) / total, math.exp(4) / total, math.exp(2) / total]
    assert record.facts.own["label_entropy"] == pytest.approx(-sum(q * math.log(q) for q in p), rel=1e-5)


def test_simple_aggregation_is_the_mean() -> None:
    answers = [predicted(0, alike(0.5, 0.3, 0.2)), predicted(1, alike(0.3, 0.5, 0.2))]
    fused, _ = scripted(answers, small(target=MeanProbs()), context())
    torch.testing.assert_close(fused.memory[GLOBAL]["probs"], alike(0.4, 0.4, 0.2))


def test_clients_of_any_size_count_alike() -> None:
    answers = [predicted(0, alike(0.5, 0.3, 0.2)), predicted(1, alike(0.3, 0.5, 0.2))]
    weighty = [replace(answers[0], num_examples=1000), answers[1]]
    one, _ = scripted(answers, small(), context())
    other, _ = scripted(weighty, small(), context())
    assert torch.equal(one.memory[GLOBAL]["probs"], other.memory[GLOBAL]["probs"])


def test_a_step_of_the_server_by_hand() -> None:
    # From zeros, all logits are 0 and the student says 1/3 each: the gradient of the bias is 1/3 - label.
    ctx = context((LINEAR,) * 4)
    algorithm = small(target=MeanProbs(), batch_size=ROWS, lr=0.3)
    fused, record = scripted([predicted(0, alike(0.5, 0.3, 0.2))], algorithm, ctx)
    bias = fused.models[LINEAR].params["bias"]
    torch.testing.assert_close(bias, 0.3 * (torch.tensor([0.5, 0.3, 0.2]) - 1 / 3))
    assert record.facts.students[LINEAR].steps == 1


def test_no_weights_travel_and_what_does_is_counted() -> None:
    ctx, algorithm, engine = context(), small(), Watched()
    server, first = run_round(algorithm, initial(ctx), engine, [0, 1, 2], Vetting(), ctx)
    _, second = run_round(algorithm, server, engine, [1, 2, 3], Vetting(), ctx.at(2))
    assert all(task.model is None for task in engine.tasks)
    assert all(isinstance(answer, Update) and answer.model is None for answer in engine.updates)
    assert (first.params_down, first.params_up) == (0, 3 * ROWS * 3)
    assert (second.params_down, second.params_up) == (3 * (ROWS * 3 + 1), 3 * ROWS * 3)  # and the labels' round
    assert second.bytes_up == 4 * second.params_up


def test_a_clients_model_stays_with_it() -> None:
    ctx, algorithm = context(), small()
    server, engine = initial(ctx), InProcess()
    server, _ = run_round(algorithm, server, engine, [0, 1], Vetting(), ctx)
    assert engine.memory().keys() == {0, 1}
    assert engine.memory()[0].keys() == set(OWN)
    now = ctx.at(2)
    task = algorithm.brief(server, 0, now)
    remembering, forgetting = algorithm.local(task, engine.memory()[0], now), algorithm.local(task, {}, now)
    assert not torch.equal(remembering.extra[PREDICTED]["probs"], forgetting.extra[PREDICTED]["probs"])


def test_what_a_client_sends_is_what_its_model_says_of_the_rounds_examples() -> None:
    ctx, algorithm = context(), small()
    record = algorithm.local(algorithm.brief(initial(ctx), 2, ctx), {}, ctx)
    net = ctx.nets.scratch("mlp:8").eval()
    net.load_state_dict({**record.memory[OWN[0]], **record.memory[OWN[1]]})
    pool, rows = PublicRows(ROWS)(1, ctx)
    with torch.no_grad():
        expected = torch.softmax(net(pool.batch(rows)), 1)
    torch.testing.assert_close(record.extra[PREDICTED]["probs"], expected)
    assert record.num_examples == len(ctx.data.parts[2])


def test_a_lesson_is_of_the_examples_that_its_labels_are_of() -> None:
    """Labels that skip a round, as after one below its quorum, are still learnt on their own examples."""
    ctx, algorithm = context(), small(lr=0.5, epochs=20)
    pool, of_first = PublicRows(ROWS)(1, ctx)
    x = pool.batch(of_first)
    right = torch.nn.functional.one_hot(x[:, :3].argmax(1), 3).float()
    task = Task(0, 3, None, {GLOBAL: {"probs": right, "round": torch.tensor(1)}})
    informed = algorithm.local(task, {}, ctx.at(3)).extra[PREDICTED]["probs"]
    misplaced = replace(task, extra={GLOBAL: {"probs": right, "round": torch.tensor(2)}})
    confused = algorithm.local(misplaced, {}, ctx.at(3)).extra[PREDICTED]["probs"]
    truth = pool.batch(PublicRows(ROWS)(3, ctx)[1])[:, :3].argmax(1)
    hits = [(probs.argmax(1) == truth).double().mean().item() for probs in (informed, confused)]
    assert hits[0] > hits[1]


def test_each_round_has_its_own_examples_and_all_know_them() -> None:
    ctx, public = context(), PublicRows(ROWS)
    (_, one), (_, again), (_, two) = public(1, ctx), public(1, ctx.at(2)), public(2, ctx)
    assert torch.equal(one, again)
    assert not torch.equal(one, two)
    assert len(one.unique()) == ROWS
    assert len(PublicRows(10**6)(1, ctx)[1]) == 256


def test_a_pool_that_is_drawn_each_round_is_drawn_again_for_its_labels() -> None:
    drawn = FreshPool(lambda generator: blobs(ROWS, int(torch.randint(100, (), generator=generator))))
    ctx, algorithm = replace(context(), fresh_pool=drawn), small()
    (first, _), (later, _) = PublicRows(ROWS)(1, ctx), PublicRows(ROWS)(1, ctx.at(2))
    every = torch.arange(ROWS)
    assert torch.equal(first.batch(every), later.batch(every))
    server, _ = run_round(algorithm, initial(ctx), engine := InProcess(), [0, 1], Vetting(), ctx)
    _, record = run_round(algorithm, server, engine, [0, 1], Vetting(), ctx.at(2))
    assert not record.rejected


Spoil = Callable[[Tensor], Tensor]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda p: p[:-1], r"predicted/probs is torch.float32 \(63, 3\), expected torch.float32 \(64, 3\)"),
        (lambda p: p.double(), "torch.float64"),
        (lambda p: -p, "values below 0"),
        (lambda p: 2 * p, "values above 1"),
        (lambda p: p * torch.nan, "not finite"),
    ],
    ids=["rows", "dtype", "negative", "above 1", "NaN"],
)
def test_what_cannot_be_probabilities_is_refused(spoil: Spoil, reason: str) -> None:
    good = alike(0.6, 0.3, 0.1)
    fused, record = scripted([predicted(0, good), predicted(1, spoil(good))], small(), context())
    assert record.rejected.keys() == {"1"}
    assert re.search(reason, record.rejected["1"])
    alone, _ = scripted([predicted(0, good)], small(), context())
    assert all_bits(fused.models) == all_bits(alone.models)


@pytest.mark.parametrize("row", [(0.5, 0.3, 0.1), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)])
def test_rows_that_are_no_distributions_are_left_out(row: tuple[float, ...]) -> None:
    bad = alike(0.6, 0.3, 0.1)
    bad[7] = torch.tensor(row)
    fused, record = scripted([predicted(0, alike(0.6, 0.3, 0.1)), predicted(1, bad)], small(), context())
    assert record.facts.teachers == 1
    assert "differs from 1 by" in record.facts.dropped["1"]
    alone, _ = scripted([predicted(0, alike(0.6, 0.3, 0.1))], small(), context())
    assert all_bits(fused.models) == all_bits(alone.models)


def test_a_round_without_a_distribution_changes_nothing() -> None:
    ctx = context()
    before, _ = scripted([predicted(0, alike(0.6, 0.3, 0.1))], small(), ctx)
    fused, record = scripted([predicted(0, alike(0.0, 0.0, 0.0))], small(), ctx.at(2), before)
    assert "no client sent probabilities" in record.facts.warning
    assert fused.round == 2
    assert all_bits(fused.models) == all_bits(before.models)
    assert int(fused.memory[GLOBAL]["round"]) == 1


def test_certainty_is_a_distribution() -> None:
    fused, record = scripted([predicted(0, alike(1.0, 0.0, 0.0))], small(target=MeanProbs()), context())
    torch.testing.assert_close(fused.memory[GLOBAL]["probs"], alike(1.0, 0.0, 0.0))
    assert record.facts.ensemble.entropy == pytest.approx(0, abs=1e-6)


def test_every_architecture_of_the_server_learns() -> None:
    ctx = context(("mlp:8", "mlp:6", "mlp:8", "mlp:6"))
    before = initial(ctx)
    fused, record = scripted([predicted(0, alike(0.6, 0.3, 0.1))], small(), ctx, before)
    assert record.facts.students.keys() == {"mlp:8", "mlp:6"}
    assert all(bits != all_bits(before.models)[arch] for arch, bits in all_bits(fused.models).items())


def test_an_experiment_that_does_not_suit_is_refused_before_it_runs() -> None:
    ctx = context()
    with pytest.raises(FedfuseError, match=r"set data\.pool"):
        ds_fl().check(replace(ctx, data=replace(ctx.data, pool=None)))
    with pytest.raises(FedfuseError, match="less than one batch of 100"):
        ds_fl(rows=50).check(ctx)
    with pytest.raises(FedfuseError, match="rows = 0"):
        ds_fl(rows=0)
    ds_fl().check(ctx)
