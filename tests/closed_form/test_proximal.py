"""mu/2 ||w - w_t||^2 and its gradient mu (w - w_t)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedfuse.local import CrossEntropy, Local, Proximal, Training
from fedfuse.types import FedfuseError

X, Y = torch.tensor([[1.0, 2.0]]), torch.tensor([0])


def net_at(weight: list[list[float]], bias: list[float]) -> nn.Linear:
    net = nn.Linear(2, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor(weight))
        net.bias.copy_(torch.tensor(bias))
    return net


START = Local([torch.zeros(2, 2), torch.zeros(2)], {}, {})


def test_the_value_is_half_mu_times_the_squared_distance() -> None:
    # ||(1, 2, 0, 1), (2, 0)||^2 = 1 + 4 + 0 + 1 + 4 = 10, times 0.4 / 2 is 2.
    term = Proximal(0.4)(net_at([[1, 2], [0, 1]], [2, 0]), X, Y, START)
    assert term.item() == pytest.approx(2.0)


def test_the_gradient_is_mu_times_the_way_from_the_start() -> None:
    net = net_at([[1, 2], [0, 1]], [2, 0])
    Proximal(0.5)(net, X, Y, START).backward()
    assert net.weight.grad is not None
    assert net.bias.grad is not None
    assert net.weight.grad.tolist() == [[0.5, 1.0], [0.0, 0.5]]
    assert net.bias.grad.tolist() == [1.0, 0.0]


def test_it_is_zero_where_the_round_began() -> None:
    net = net_at([[1, 2], [0, 1]], [2, 0])
    term = Proximal(3.0)(net, X, Y, Local([p.detach().clone() for p in net.parameters()], {}, {}))
    assert term.item() == 0.0


def test_the_loss_is_the_sum_of_its_terms() -> None:
    # Logits of zeros: cross entropy log 2. Distance 10 as above, mu = 0.4: 2.
    net = net_at([[1, 2], [0, 1]], [2, 0])
    local = Local(START.start, {}, {})
    zeros = torch.zeros(1, 2)
    both = Training((CrossEntropy(), Proximal(0.4))).loss(net, zeros, Y, local)
    # x = 0 leaves the logits (2, 0): -log(e^2 / (e^2 + 1)) = log(1 + e^-2).
    assert both.item() == pytest.approx(torch.log1p(torch.exp(torch.tensor(-2.0))).item() + 2.0)


def test_a_negative_mu_is_refused() -> None:
    with pytest.raises(FedfuseError, match="mu must not be negative"):
        Proximal(-0.1)
