"""The loss scale of float16: it halves and skips at gradients that are not finite, doubles after a row of finite ones,
and otherwise the steps are those of float32."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedfuse.compute.optimizers import SGD, Adam, LossScale, Optimizer

CPU = torch.device("cpu")


def after(scale: LossScale, *gradients: float) -> list[float]:
    """Return the factor after each step, whose only gradient is given."""
    factors = []
    for gradient in gradients:
        scale.unscale([torch.tensor([float(gradient)])])
        scale.update()
        factors.append(float(scale.factor))
    return factors


def test_it_starts_as_that_of_pytorch() -> None:
    theirs = torch.amp.GradScaler("cpu")
    assert float(LossScale(CPU).factor) == theirs.get_scale() == 65536


def test_it_halves_at_infinity_and_doubles_after_a_row_of_finite_steps() -> None:
    inf, nan = float("inf"), float("nan")
    scale = LossScale(CPU, start=8.0, interval=3)
    # Two finite steps, one that is not, which halves it and ends the row; three finite ones double it.
    assert after(scale, 1, 1, inf, 1, 1, 1, 1, nan) == [8, 8, 4, 4, 4, 8, 8, 4]
    assert float(scale.skipped) == 2


def test_gradients_are_divided_by_the_factor() -> None:
    scale = LossScale(CPU, start=4.0)
    gradients = [torch.tensor([8.0, -2.0]), torch.tensor([[1.0]])]
    scale.unscale(gradients)
    assert gradients[0].tolist() == [2.0, -0.5]
    assert gradients[1].tolist() == [[0.25]]
    assert float(scale.found_inf) == 0


MAKERS = {
    "sgd": lambda p, scaled: SGD(p, 0.1, scaled=scaled, fused=True),
    "momentum": lambda p, scaled: SGD(p, 0.1, momentum=0.9, weight_decay=0.01, scaled=scaled, fused=True),
    "adam": lambda p, scaled: Adam(p, 0.1, scaled=scaled, fused=True),
    "amsgrad": lambda p, scaled: Adam(p, 0.1, amsgrad=True, weight_decay=0.01, scaled=scaled, fused=True),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("clip", [None, 0.5])
def test_a_skipped_step_leaves_no_trace_and_the_others_are_those_without_a_scale(name: str, clip: float | None) -> None:
    """The factor is a power of two, so that scaling changes no bit of a finite gradient."""
    weights = [nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2)]
    scaled, plain = MAKERS[name]([weights[0]], True), MAKERS[name]([weights[1]], False)

    def step(optimizer: Optimizer, weight: nn.Parameter, factor: float) -> None:
        optimizer.minimise((weight * torch.tensor([factor, 3.0])).square().sum(), clip)

    for factor in (float("inf"), 1.0, 2.0, float("nan"), 0.5):
        before = weights[0].detach().clone()
        step(scaled, weights[0], factor)
        if factor in (1.0, 2.0, 0.5):
            step(plain, weights[1], factor)
            assert torch.equal(weights[0], weights[1])
            assert not torch.equal(weights[0], before)
        else:
            assert torch.equal(weights[0], before)
    assert scaled.skipped() == 2
    assert plain.skipped() == 0


def test_small_gradients_survive_float16() -> None:
    """A gradient of 2^-26 is 0 in float16; scaled by 2^16 it is not."""
    weight = nn.Parameter(torch.zeros(1))
    for scaled, expected in ((False, 0.0), (True, -(2.0**-26))):
        optimizer = SGD([weight], 1.0, scaled=scaled)
        weight.data.zero_()
        half = weight.half()
        optimizer.minimise((half.float() * 2.0**-26).sum())
        assert weight.item() == expected
