"""Server momentum v := beta v + (x - mean), x := x - v, over three rounds on paper."""

from __future__ import annotations

import pytest
import torch

from fedfuse.context import Context
from fedfuse.fusion import Averaged, Momentum
from fedfuse.types import FedfuseError, ServerState
from tests.doubles import snapshot, update


def test_three_rounds_with_momentum_are_those_on_paper(ctx: Context) -> None:
    # beta = 0.5, and every round's clients answer x - 1, so that x - mean = 1 each time:
    #   v = 1, 1.5, 1.75      x = 10 - 1 = 9, 9 - 1.5 = 7.5, 7.5 - 1.75 = 5.75
    fuse = Averaged(Momentum(0.5))
    server = ServerState(0, {"one": snapshot(10.0)})
    seen = []
    for _ in range(3):
        x = server.models["one"].params["w"]
        server, _ = fuse(server, [update(0, 1, snapshot(float(x) - 1))], ctx)
        seen.append((server.models["one"].params["w"].item(), server.memory["velocity/one"]["w"].item()))
    assert seen == [(9.0, 1.0), (7.5, 1.5), (5.75, 1.75)]


def test_buffers_have_no_momentum(ctx: Context) -> None:
    server = ServerState(0, {"one": snapshot(10.0, mean=torch.tensor([4.0]))})
    fuse = Averaged(Momentum(0.9))
    for mean in (2.0, 3.0):
        server, _ = fuse(server, [update(0, 1, snapshot(0.0, mean=torch.tensor([mean])))], ctx)
        assert server.models["one"].buffers["mean"].item() == mean


def test_an_architecture_that_pauses_keeps_its_velocity(ctx: Context) -> None:
    server = ServerState(0, {"one": snapshot(10.0), "two": snapshot(10.0, arch="two")})
    fuse = Averaged(Momentum(0.5))
    server, _ = fuse(server, [update(0, 1, snapshot(9.0))], ctx)
    server, _ = fuse(server, [update(1, 1, snapshot(9.0, arch="two"))], ctx)
    server, _ = fuse(server, [update(0, 1, snapshot(8.0))], ctx)
    # one: x = 9 with v = 1; then v = 0.5 + (9 - 8) = 1.5 and x = 7.5, as if the second round had not been.
    assert server.models["one"].params["w"].item() == 7.5
    assert server.models["two"].params["w"].item() == 9.0


@pytest.mark.parametrize("beta", [-0.1, 1.0, float("nan")])
def test_a_beta_outside_zero_to_one_is_refused(beta: float) -> None:
    with pytest.raises(FedfuseError, match=r"beta must be in \[0, 1\)"):
        Momentum(beta)
