"""Teachers are run once, as they are, over the rows that can be reached; tables spill without a difference."""

import pytest
import torch
from torch import nn

from fedfuse.fusion import MeanLogits, table
from fedfuse.fusion.lecture import Lecture
from fedfuse.fusion.table import NotFiniteError, Table, TensorPool, outputs, reachable
from fedfuse.types import FedfuseError
from tests.fusion.cases import Constant, mlp


def test_only_rows_that_batches_can_touch() -> None:
    few = reachable(1000, steps=3, batch_size=10, rng=torch.Generator().manual_seed(0))
    assert len(few) == 30
    assert len(few.unique()) == 30
    everything = reachable(1000, steps=101, batch_size=10, rng=torch.Generator().manual_seed(0))
    assert sorted(everything.tolist()) == list(range(1000))
    assert torch.equal(everything[:30], few)


def test_outputs_are_those_of_eval_mode_and_leave_the_net_as_it_was() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    net.train()
    net[1].eval()  # a mix of modes, as with a frozen batch norm
    before = {name: t.clone() for name, t in net.state_dict().items()}
    x = torch.randn(50, 4)
    logits = outputs(net, TensorPool(x), torch.arange(10, 40), "the net", batch_size=7)
    assert [m.training for m in net] == [True, False, True, True]
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())
    assert not logits.requires_grad
    torch.testing.assert_close(logits, net.eval()(x[10:40]))


def test_a_teacher_runs_once_per_row() -> None:
    calls: list[int] = []
    net = Constant(1.0, 0.0)
    net.register_forward_hook(lambda module, args, out: calls.append(len(args[0])))
    outputs(net, TensorPool(torch.zeros(1300, 1)), torch.arange(1300), "x")
    assert sum(calls) == 1300


def test_outputs_that_are_not_finite_name_the_teacher() -> None:
    with pytest.raises(NotFiniteError, match="client 3"):
        outputs(Constant(float("nan"), 0.0), TensorPool(torch.zeros(4, 1)), torch.arange(4), "client 3")


def test_outputs_of_another_shape_name_the_teacher() -> None:
    with pytest.raises(FedfuseError, match=r"client 3 gives outputs of shape \(4, 1, 1\)"):
        outputs(nn.Unflatten(1, (1, 1)), TensorPool(torch.zeros(4, 1)), torch.arange(4), "client 3")


def test_teachers_of_different_widths_are_named() -> None:
    lecture = Lecture(MeanLogits(), TensorPool(torch.zeros(4, 4)), torch.arange(4))
    lecture.take(lecture.listen(mlp(0), "first"), "first")
    with pytest.raises(FedfuseError, match="second gives logits for 5 classes, first for 3"):
        lecture.listen(mlp(0, classes=5), "second")


def test_a_table_spills_and_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "BLOCK", 40)  # several blocks
    logits = torch.randn(6, 9, 4, generator=torch.Generator().manual_seed(1))
    kept, spilled = Table(9, 4), Table(9, 4, bound=3 * 9 * 4 * 2)
    for teacher in logits:
        kept.append(teacher)
        spilled.append(teacher)
    assert (kept.spilled, spilled.spilled) == (False, True)
    assert not spilled._kept
    whole = torch.cat(list(kept.blocks()), 1)
    assert torch.equal(whole, torch.cat(list(spilled.blocks()), 1))
    assert torch.equal(whole, logits.half().float())


def test_a_table_holds_what_half_precision_cannot() -> None:
    full = Table(1, 2)
    full.append(torch.tensor([[1e9, -1e9]]))
    assert torch.isfinite(next(full.blocks())).all()
    with pytest.raises(FedfuseError, match=r"given \(2, 2\)"):
        full.append(torch.zeros(2, 2))
