"""Targets, against numbers that can be redone on paper, and the streaming path against the stacked one."""

from math import exp, log

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfuse.fusion import MeanLogits, MeanLosses, MeanProbs, TableTarget, Target
from fedfuse.types import FedfuseError

LN3 = log(3)
# Two teachers, one row, two classes: probabilities (3/4, 1/4) and (1/2, 1/2).
LOGITS = torch.tensor([[[LN3, 0.0]], [[0.0, 0.0]]])

TARGETS: list[Target] = [
    MeanLogits(),
    MeanLogits(temperature=3.0),
    MeanProbs(),
    MeanProbs(sharpen=2.0, temperature=0.5),
    MeanLosses(),
]


def test_mean_logits_is_softmax_of_the_mean() -> None:
    # The mean logits are (ln 3 / 2, 0), so the odds are sqrt 3 : 1.
    share = 3**0.5 / (1 + 3**0.5)
    torch.testing.assert_close(MeanLogits()(LOGITS), torch.tensor([[share, 1 - share]]))


def test_mean_probs_is_the_mean_of_softmaxes() -> None:
    torch.testing.assert_close(MeanProbs()(LOGITS), torch.tensor([[5 / 8, 3 / 8]]))


def test_sharpening_squares_and_normalises() -> None:
    torch.testing.assert_close(MeanProbs(sharpen=2.0)(LOGITS), torch.tensor([[25 / 34, 9 / 34]]))


def test_weights_are_shares() -> None:
    torch.testing.assert_close(
        MeanProbs()(LOGITS, torch.tensor([3.0, 1.0])), torch.tensor([[(3 * 3 / 4 + 1 / 2) / 4, (3 / 4 + 1 / 2) / 4]])
    )
    torch.testing.assert_close(MeanLogits()(LOGITS, torch.tensor([0.0, 2.0])), torch.tensor([[0.5, 0.5]]))


def test_temperature_divides_logits() -> None:
    odds = exp(LN3 / 2 / 2)  # mean logit ln 3 / 2, at temperature 2
    torch.testing.assert_close(MeanLogits(temperature=2)(LOGITS)[0, 0], torch.tensor(odds / (1 + odds)))


def test_mean_losses_has_the_gradient_of_mean_probs_and_its_own_loss() -> None:
    student = torch.tensor([[0.3, -0.2]], requires_grad=True)
    teachers = torch.softmax(LOGITS, 2)
    mean_of_losses = torch.stack(
        [torch.nn.functional.kl_div(torch.log_softmax(student, 1), p, reduction="batchmean") for p in teachers]
    ).mean()
    (expected,) = torch.autograd.grad(mean_of_losses, student)
    running = MeanLosses().start(1, 2)
    for logits in LOGITS:
        running.add(logits)
    probs, floor, _ = running.value()
    cross_entropy = torch.nn.functional.cross_entropy(student, probs)
    (gradient,) = torch.autograd.grad(cross_entropy, student)
    torch.testing.assert_close(gradient, expected)
    torch.testing.assert_close(cross_entropy - floor.mean(), mean_of_losses)


@pytest.mark.parametrize("target", TARGETS, ids=str)
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_streaming_agrees_with_a_slow_oracle(target: Target, data: st.DataObject) -> None:
    seed, teachers = data.draw(st.integers(0, 10_000)), data.draw(st.integers(1, 5))
    generator = torch.Generator().manual_seed(seed)
    logits = 5 * torch.randn(teachers, 7, 4, generator=generator)
    weights = torch.rand(teachers, generator=generator) + 0.1
    share = (weights / weights.sum()).double()[:, None, None]
    t = target.temperature
    if isinstance(target, MeanLogits):
        expected = torch.softmax((share * logits).sum(0) / t, 1)
    else:
        expected = (share * torch.softmax(logits.double() / t, 2)).sum(0)
        if isinstance(target, MeanProbs):
            expected = expected**target.sharpen / (expected**target.sharpen).sum(1, keepdim=True)
    running = target.start(7, 4)
    for k in torch.randperm(teachers, generator=generator).tolist():  # in any order
        running.add(logits[k], float(weights[k]))
    torch.testing.assert_close(running.value().probs, expected.float(), atol=1e-6, rtol=0)
    torch.testing.assert_close(target(logits, weights), expected.float(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_equal_teachers_are_one_teacher(target: Target) -> None:
    logits = torch.randn(1, 5, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(target(logits.expand(3, 5, 3)), target(logits))


def test_logits_far_out_stay_finite() -> None:
    huge = torch.tensor([[[1e30, -1e30, 0.0]]])
    for target in TARGETS:
        assert torch.isfinite(target(huge)).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MeanLogits(temperature=0), "temperature"),
        (lambda: MeanProbs(sharpen=-1), "sharpen"),
        (lambda: MeanLogits()(LOGITS, torch.tensor([1.0, -1.0])), "weight -1"),
        (lambda: MeanLogits()(LOGITS, torch.tensor([0.0, 0.0])), "above 0"),
        (lambda: MeanLogits()(LOGITS, torch.tensor([1.0])), "1 weights were given for 2"),
        (lambda: MeanLogits()(torch.zeros(0, 2, 2)), "at least one"),
    ],
)
def test_errors_name_the_value(make, words) -> None:
    with pytest.raises(FedfuseError, match=words):
        make()


def test_a_target_that_needs_all_teachers_keeps_the_table() -> None:
    def median(logits: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return torch.softmax(logits.median(0).values, 1)

    logits = torch.randn(5, 11, 3, generator=torch.Generator().manual_seed(0)).half().float()
    results = []
    for bound in (10**9, 100):  # in memory; in a file
        running = TableTarget(median, 11, 3, bound)
        for teacher in logits:
            running.add(teacher)
        results.append(running.value().probs)
    torch.testing.assert_close(results[0], torch.softmax(logits.median(0).values, 1))
    assert torch.equal(results[0], results[1])
