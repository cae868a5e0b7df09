"""Teachers are run once, as they are, over the rows that can be reached; tables spill without a difference."""

import threading
import time

import pytest
import torch
from torch import Tensor, nn

from fedfuse import models, predict
from fedfuse.fusion import MeanLogits, table
from fedfuse.fusion.labelling import Labelling
from fedfuse.fusion.table import NotFiniteError, Table, TensorPool, logits_of, reachable
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
    logits = logits_of(net, TensorPool(x), torch.arange(10, 40), "the net", batch_size=7)
    assert [m.training for m in net] == [True, False, True, True]
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())
    assert not logits.requires_grad
    torch.testing.assert_close(logits, net.eval()(x[10:40]))


def test_a_teacher_runs_once_per_row() -> None:
    calls: list[int] = []
    net = Constant(1.0, 0.0)
    net.register_forward_hook(lambda module, args, out: calls.append(len(args[0])))
    logits_of(net, TensorPool(torch.zeros(1300, 1)), torch.arange(1300), "x")
    assert sum(calls) == 1300


def test_outputs_that_are_not_finite_name_the_teacher() -> None:
    with pytest.raises(NotFiniteError, match="client 3"):
        logits_of(Constant(float("nan"), 0.0), TensorPool(torch.zeros(4, 1)), torch.arange(4), "client 3")


def test_outputs_of_another_shape_name_the_teacher() -> None:
    with pytest.raises(FedfuseError, match=r"client 3 gives outputs of shape \(4, 1, 1\)"):
        logits_of(nn.Unflatten(1, (1, 1)), TensorPool(torch.zeros(4, 1)), torch.arange(4), "client 3")


def test_teachers_of_different_widths_are_named() -> None:
    labelling = Labelling(MeanLogits(), TensorPool(torch.zeros(4, 4)), torch.arange(4))
    labelling.add(labelling.logits(mlp(0), "first"), "first")
    with pytest.raises(FedfuseError, match="second gives logits for 5 classes, first for 3"):
        labelling.logits(mlp(0, classes=5), "second")


def test_a_table_spills_and_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "BLOCK", 40)  # several blocks
    logits = torch.randn(6, 9, 4, generator=torch.Generator().manual_seed(1))
    in_memory, spilled = Table(9, 4), Table(9, 4, bound=3 * 9 * 4 * 2)
    for teacher in logits:
        in_memory.append(teacher)
        spilled.append(teacher)
    assert (in_memory.spilled, spilled.spilled) == (False, True)
    whole = torch.cat(list(in_memory.blocks()), 1)
    assert torch.equal(whole, torch.cat(list(spilled.blocks()), 1))
    assert torch.equal(whole, logits.half().float())


def test_a_table_holds_what_half_precision_cannot() -> None:
    full = Table(1, 2)
    full.append(torch.tensor([[1e9, -1e9]]))
    assert torch.isfinite(next(full.blocks())).all()
    with pytest.raises(FedfuseError, match=r"given \(2, 2\)"):
        full.append(torch.zeros(2, 2))


# Lanes: batches in threads of their own.


class Echo(nn.Module):
    """Says its inputs, by way of an attribute; batches that come early take longest."""

    last_input: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.last_input = x
        time.sleep(0.01 / (1 + float(x[0, 0])))
        return self.last_input * 2


@pytest.mark.parametrize("arch", ["resnet8", "mlp:16"])
def test_bits_do_not_depend_on_the_number_of_lanes(arch: str) -> None:
    net = models.build(arch, classes=5, shape=(3, 8, 8))
    pool = TensorPool(torch.randn(210, 3, 8, 8, generator=torch.Generator().manual_seed(0)))
    one, two, three = (logits_of(net, pool, torch.arange(210), "x", 32, lanes) for lanes in (1, 2, 3))
    assert torch.equal(one, two)
    assert torch.equal(one, three)


def test_lanes_keep_the_order_and_what_a_net_writes_on_itself_apart() -> None:
    x = torch.arange(60.0)[:, None].expand(60, 2)
    rows = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    net = Echo().train()
    assert torch.equal(logits_of(net, TensorPool(x), rows, "echo", batch_size=4, lanes=3), 2 * x[rows])
    assert net.training


def test_a_failure_in_a_lane_is_raised_as_itself_and_the_net_is_restored() -> None:
    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if float(x[0, 0]) == 8:
                raise ZeroDivisionError("in the third batch")
            return x

    net = Fails().train()
    with pytest.raises(ZeroDivisionError, match="in the third batch"):
        logits_of(net, TensorPool(torch.arange(40.0)[:, None]), torch.arange(40), "x", batch_size=4, lanes=2)
    assert net.training


def test_lanes_share_the_tensors_and_take_no_gradients() -> None:
    seen: list[tuple[str, bool, int]] = []
    net = nn.Linear(2, 3)

    def look(module: nn.Module, args: tuple[Tensor], out: Tensor) -> None:
        time.sleep(0.01)
        seen.append((threading.current_thread().name, out.requires_grad, module.get_parameter("weight").data_ptr()))

    net.register_forward_hook(look)
    logits_of(net, TensorPool(torch.zeros(40, 2)), torch.arange(40), "x", batch_size=4, lanes=2)
    names, gradients, weights = (set(column) for column in zip(*seen, strict=True))
    assert len(names) == 3  # the caller's for the first batch, then two lanes
    assert (gradients, weights) == ({False}, {net.weight.data_ptr()})


def test_every_lane_is_given_the_number_of_threads_that_torch_has(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int]] = []  # a new thread does not know it, and asking for it would tell it
    monkeypatch.setattr("torch.set_num_threads", lambda n: calls.append((threading.current_thread().name, n)))
    logits_of(Echo(), TensorPool(torch.zeros(40, 2)), torch.arange(40), "x", batch_size=4, lanes=2)
    assert calls == [("fedfuse-lane_0", torch.get_num_threads()), ("fedfuse-lane_1", torch.get_num_threads())]


def test_a_net_that_cannot_be_copied_has_one_lane() -> None:
    net = nn.Linear(2, 3)
    net.lock = threading.Lock()  # type: ignore[assignment]
    pool = TensorPool(torch.randn(40, 2))
    assert torch.equal(
        logits_of(net, pool, torch.arange(40), "x", 4, lanes=2), logits_of(net, pool, torch.arange(40), "x", 4)
    )


def test_lanes_are_the_cores_that_torch_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(6)))
    net = nn.Linear(2, 3)
    counts = []
    for threads in (1, 4, 8):
        monkeypatch.setattr("torch.get_num_threads", lambda threads=threads: threads)
        counts.append(predict._lanes(net))
    assert counts == [6, 1, 1]
    monkeypatch.setattr("torch.get_num_threads", lambda: 1)
    with torch.autocast("cpu"):
        assert predict._lanes(net) == 1
