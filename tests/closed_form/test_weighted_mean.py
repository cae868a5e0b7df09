"""The mean of client models, redone on paper: (1 x 1 + 3 x 5) / 4 = 4."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import tensor

from fedfuse.context import Context
from fedfuse.fusion import Averaged, WeightedMean
from fedfuse.fusion.aggregate import recalibrate
from fedfuse.testing import bits
from fedfuse.tree import RunningMean
from fedfuse.types import FedfuseError, ServerState, Snapshot
from tests.doubles import NORMED, aggregated, context, initial, snapshot, update

SERVER = ServerState(0, {"one": snapshot(0.0, mean=tensor([7.0]), count=tensor(70))})


def two_clients(first: Snapshot, second: Snapshot, mean: WeightedMean, ctx: Context) -> Snapshot:
    """Client 0 has one example, client 1 three."""
    updates = [update(0, 1, first), update(1, 3, second)]
    return aggregated(mean, SERVER, updates, ctx).models["one"]


def test_the_mean_weighs_clients_by_their_examples(ctx: Context) -> None:
    fused = two_clients(snapshot(1.0, 2.0), snapshot(5.0, -2.0), WeightedMean(), ctx)
    assert fused.params["w"].tolist() == [(1 * 1 + 3 * 5) / 4, (1 * 2 + 3 * -2) / 4] == [4.0, -1.0]


def test_uniform_weights_do_not_look_at_examples(ctx: Context) -> None:
    fused = two_clients(snapshot(1.0), snapshot(5.0), WeightedMean(weights="uniform"), ctx)
    assert fused.params["w"].tolist() == [3.0]


def test_buffers_are_averaged_like_parameters_and_counters_stay_whole(ctx: Context) -> None:
    # Averaging parameters() alone would keep the first client's statistics: 2.
    first = snapshot(1.0, mean=tensor([2.0]), count=tensor(10))
    second = snapshot(5.0, mean=tensor([6.0]), count=tensor(23))
    fused = two_clients(first, second, WeightedMean(), ctx)
    assert fused.buffers["mean"].tolist() == [(1 * 2 + 3 * 6) / 4] == [5.0]
    # (10 + 3 x 23) / 4 = 19.75, and a counter is a whole number: the nearest.
    assert fused.buffers["count"].item() == 20
    assert fused.buffers["count"].dtype == torch.int64


def test_keep_leaves_the_servers_buffers(ctx: Context) -> None:
    first = snapshot(1.0, mean=tensor([2.0]), count=tensor(10))
    second = snapshot(5.0, mean=tensor([6.0]), count=tensor(21))
    fused = two_clients(first, second, WeightedMean(buffers="keep"), ctx)
    assert fused.params["w"].tolist() == [4.0]
    assert (fused.buffers["mean"].tolist(), fused.buffers["count"].item()) == ([7.0], 70)


def test_last_takes_the_buffers_of_the_last_client(ctx: Context) -> None:
    first = snapshot(1.0, mean=tensor([2.0]), count=tensor(10))
    second = snapshot(5.0, mean=tensor([6.0]), count=tensor(21))
    fused = two_clients(first, second, WeightedMean(buffers="last"), ctx)
    assert fused.params["w"].tolist() == [4.0]
    assert (fused.buffers["mean"].tolist(), fused.buffers["count"].item()) == ([6.0], 21)
    assert fused.buffers["mean"].data_ptr() != second.buffers["mean"].data_ptr()


def test_recalibrate_measures_batch_norm_on_the_pool() -> None:
    # What the layer sees of the pool is x = pool W^T + b; its statistics are those of x: 256 rows are one batch.
    ctx = context((NORMED,) * 2)
    server = initial(ctx)
    stale = replace(server.models[NORMED], buffers={n: b + 3 for n, b in server.models[NORMED].buffers.items()})
    updates = [update(0, 1, stale), update(1, 2, stale)]
    fused = aggregated(WeightedMean(buffers="recalibrate"), server, updates, ctx).models
    params, buffers = fused[NORMED].params, fused[NORMED].buffers
    assert ctx.data.pool is not None
    seen = ctx.data.pool.x @ params["0.weight"].T + params["0.bias"]  # (256, 5)
    torch.testing.assert_close(buffers["1.running_mean"], seen.mean(0), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(buffers["1.running_var"], seen.var(0, unbiased=True), rtol=1e-5, atol=1e-5)
    assert params.keys() == server.models[NORMED].params.keys()
    assert bits(replace(stale, buffers={})) == bits(replace(fused[NORMED], buffers={}))


def test_recalibrate_without_a_pool_says_what_to_set() -> None:
    ctx = context((NORMED,) * 2)
    ctx = replace(ctx, data=replace(ctx.data, pool=None))
    with pytest.raises(FedfuseError, match=r"set data\.pool"):
        recalibrate(initial(ctx).models[NORMED], ctx)


def test_each_architecture_is_averaged_with_its_own(ctx: Context) -> None:
    server = ServerState(
        4, {"one": snapshot(0.0), "two": snapshot(0.0, arch="two"), "idle": snapshot(9.0, arch="idle")}
    )
    stream = [
        update(0, 1, snapshot(2.0)),
        update(1, 1, snapshot(8.0, arch="two")),
        update(2, 1, snapshot(4.0)),
    ]
    state, _ = Averaged()(server, stream, ctx)
    assert {arch: m.params["w"].item() for arch, m in state.models.items()} == {"one": 3.0, "two": 8.0, "idle": 9.0}
    assert state.round == 5


def test_the_running_mean_does_not_lose_small_clients_behind_many_others() -> None:
    # In single precision 2^24 + 1 is 2^24: a sum of weights or values kept there would forget the last client.
    mean = RunningMean()
    for _ in range(3):
        mean.add({"w": tensor([2.0**24])}, 2**24)
    mean.add({"w": tensor([0.0])}, 2**24)
    assert mean.value()["w"].item() == 0.75 * 2**24


def test_half_precision_models_are_averaged_in_double_and_handed_back_in_half() -> None:
    # 2048 + 1 is 2048 in half precision; in double the mean of 2048, 2048 and 2054 is 2050.
    mean = RunningMean()
    for value in (2048.0, 2048.0, 2054.0):
        mean.add({"w": tensor([value], dtype=torch.float16)}, 1)
    assert mean.value()["w"].item() == 2050.0
    assert mean.value()["w"].dtype == torch.float16


@pytest.mark.parametrize("weight", [0, -1, float("nan")])
def test_a_weight_that_is_not_positive_is_refused(weight: float) -> None:
    with pytest.raises(FedfuseError, match="weights must be positive"):
        RunningMean().add({"w": tensor([1.0])}, weight)


def test_a_client_without_a_model_is_named(ctx: Context) -> None:
    with pytest.raises(FedfuseError, match="client 3 sent no model"):
        aggregated(WeightedMean(), SERVER, [update(3, 1, None)], ctx)
