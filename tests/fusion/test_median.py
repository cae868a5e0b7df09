"""The coordinate-wise median, as an aggregate and as a target: by hand, by an oracle, and through the laws."""

from __future__ import annotations

import inspect
from math import exp

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfuse.algorithms import fedavg, fedavgm, feddf
from fedfuse.fusion import CoordinateMedian, MedianLogits, median
from fedfuse.testing import LAWS, small_context
from fedfuse.types import FedfuseError, ServerState
from tests.doubles import NORMED, aggregated, context, snapshot, update

SERVER = ServerState(0, {"one": snapshot(0.0, 0.0, count=torch.tensor(7))})


def test_the_middle_client_of_each_parameter_by_hand(ctx) -> None:
    # (1, 9), (2, -50) and (1000, 3): the middles are 2 and 3, whatever the numbers of examples.
    clients = [snapshot(1.0, 9.0, count=torch.tensor(1)), snapshot(2.0, -50.0, count=torch.tensor(2)),
               snapshot(1000.0, 3.0, count=torch.tensor(4))]  # fmt: skip
    models, _ = aggregated(CoordinateMedian(), SERVER, [update(k, 10**k, m) for k, m in enumerate(clients)], ctx)
    assert models["one"].params["w"].tolist() == [2.0, 3.0]
    assert models["one"].buffers["count"].tolist() == 2
    # Of four the mean of the two in the middle: (2 + 4) / 2 and (3 + 5) / 2.
    four = [*clients, snapshot(4.0, 5.0, count=torch.tensor(3))]
    models, _ = aggregated(CoordinateMedian(), SERVER, [update(k, 1, m) for k, m in enumerate(four)], ctx)
    assert models["one"].params["w"].tolist() == [3.0, 4.0]


def test_soft_labels_by_hand() -> None:
    # Logits of one row: (0, 1), (2, -5), (9, 3). The middles are 2 and 1.
    logits = torch.tensor([[[0.0, 1.0]], [[2.0, -5.0]], [[9.0, 3.0]]])
    share = exp(2) / (exp(2) + exp(1))
    torch.testing.assert_close(MedianLogits()(logits), torch.tensor([[share, 1 - share]]))
    soft = exp(1) / (exp(1) + exp(0.5))
    torch.testing.assert_close(MedianLogits(temperature=2.0)(logits), torch.tensor([[soft, 1 - soft]]))


@given(seed=st.integers(0, 1000), clients=st.integers(1, 6))
def test_it_is_numpys_median(seed: int, clients: int) -> None:
    rows = torch.randn(clients, 3, 5, generator=torch.Generator().manual_seed(seed)).double()
    np.testing.assert_allclose(median.median(rows).numpy(), np.median(rows.numpy(), axis=0))


def test_in_a_file_and_in_blocks_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = context((NORMED,) * 4)
    server = ServerState(0, ctx.initial())
    updates = [update(k, 1, ctx.nets.initial(NORMED, ctx.rng("client", k))) for k in range(4)]
    whole = aggregated(CoordinateMedian(), server, updates, ctx).models[NORMED]
    monkeypatch.setattr(median, "BLOCK", 7)
    spilling = median.SpillingRows
    monkeypatch.setattr(median, "SpillingRows", lambda dtype: spilling(dtype, bound=100))
    in_file = aggregated(CoordinateMedian(), server, updates, ctx).models[NORMED]
    for name, tensor in whole.params.items():
        assert torch.equal(tensor, in_file.params[name])


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("archs", [("mlp:8",), ("mlp:8", NORMED)], ids=["one", "two"])
@pytest.mark.parametrize(
    "algorithm",
    [
        fedavg(aggregate=CoordinateMedian()),
        fedavgm(aggregate=CoordinateMedian()),
        feddf(target=MedianLogits(), steps=8, batch_size=32, probe=20),
        feddf(over=fedavg(aggregate=CoordinateMedian()), steps=8, batch_size=32, probe=20),
    ],
    ids=["aggregate", "under momentum", "target", "under distillation"],
)
def test_it_keeps_the_laws(algorithm, archs: tuple[str, ...], law: str) -> None:
    LAWS[law](algorithm, small_context(algorithm, archs))


@pytest.mark.parametrize("part", [(CoordinateMedian, median._RunningMedian), (MedianLogits,)])
def test_a_robust_part_is_short(part: tuple[type, ...]) -> None:
    assert sum(len(inspect.getsource(each).splitlines()) for each in part) <= 40


def test_errors(ctx) -> None:
    with pytest.raises(FedfuseError, match="client 3 sent no model"):
        aggregated(CoordinateMedian(), SERVER, [update(3, 1, None)], ctx)
    with pytest.raises(FedfuseError, match=r"MedianLogits .* use MeanLogits"):
        MedianLogits()(torch.zeros(2, 1, 2), torch.tensor([1.0, 2.0]))
    with pytest.raises(FedfuseError, match="temperature=0"):
        MedianLogits(temperature=0)
