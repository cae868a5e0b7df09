"""Batch-norm statistics on a pool whose last batch would be a single row."""

import torch

from fedfuse.fusion.aggregate import recalibrate
from fedfuse.fusion.batch_norm import recompute_batch_norm
from fedfuse.fusion.table import TensorPool
from tests.fusion.cases import context, mlp, server_of


def test_whole_batches_only() -> None:
    net = mlp(0, norm=True)
    x = torch.randn(33, 4, generator=torch.Generator().manual_seed(0))
    recompute_batch_norm(net, TensorPool(x), torch.arange(33), 16, torch.Generator())
    hidden = net[0](x)
    expected = (hidden[:16].var(0) + hidden[16:32].var(0)) / 2
    torch.testing.assert_close(net[1].running_var, expected)


def test_an_aggregate_can_recalibrate() -> None:
    ctx = context(("mlp:8:bn",))
    model = server_of(ctx).models["mlp:8:bn"]
    fresh = recalibrate(model, ctx, batch_size=255)  # 256 rows: one would be left over
    assert all(torch.equal(t, fresh.params[name]) for name, t in model.params.items())
    moved = [name for name, t in model.buffers.items() if not torch.equal(t, fresh.buffers[name])]
    assert any("running_mean" in name for name in moved)
