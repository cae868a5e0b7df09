"""DS-FL's entropy reduction aggregation, on numbers that can be redone on paper."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfuse.algorithms import fedavg
from fedfuse.algorithms.ds_fl.entropy_reduction import EntropyReduced
from fedfuse.fusion import SGD, Clients, Distilled, MeanProbs
from fedfuse.fusion.target import entropy
from fedfuse.types import FedfuseError
from tests.doubles import context, initial, trained


def log(*rows: tuple[float, ...]) -> torch.Tensor:
    """Probabilities -> logits with this softmax."""
    return torch.tensor(rows).log()


def test_two_teachers_and_two_classes() -> None:
    # The mean of (0.8, 0.2) and (0.6, 0.4) is (0.7, 0.3); softmax(7, 3) = 1 / (1 + e^-4).
    labels = EntropyReduced()(torch.stack([log((0.8, 0.2)), log((0.6, 0.4))]))
    sure = 1 / (1 + math.exp(-4))
    torch.testing.assert_close(labels, torch.tensor([[sure, 1 - sure]]))


def test_teachers_that_cancel_out_stay_undecided() -> None:
    labels = EntropyReduced()(torch.stack([log((0.9, 0.1)), log((0.1, 0.9))]))
    torch.testing.assert_close(labels, torch.tensor([[0.5, 0.5]]))


def test_weights_count() -> None:
    # (3 x 0.8 + 1 x 0.4) / 4 = 0.7
    labels = EntropyReduced()(torch.stack([log((0.8, 0.2)), log((0.4, 0.6))]), torch.tensor([3.0, 1.0]))
    assert float(labels[0, 0]) == pytest.approx(1 / (1 + math.exp(-4)))


def test_certain_teachers_leave_a_trace_of_doubt() -> None:
    # softmax(10, 0): a mean of 1 and 0 is not sharpened any further.
    labels = EntropyReduced()(torch.tensor([[[200.0, -200.0]]]))
    assert float(labels[0, 1]) == pytest.approx(1 / (1 + math.exp(10)))


def test_it_reduces_the_entropy_of_few_classes_and_never_changes_the_first() -> None:
    logits = torch.randn(5, 40, 3, generator=torch.Generator().manual_seed(0))
    reduced, mean = EntropyReduced()(logits), MeanProbs()(logits)
    assert bool((entropy(reduced) < entropy(mean)).all())
    assert torch.equal(reduced.argmax(1), mean.argmax(1))


def test_a_nearly_flat_mean_of_many_classes_becomes_flatter() -> None:
    # Near the uniform, softmax(p / T) is 1 / (T C) times as far from it as p is: with T = 0.1 and 100 classes 1/10.
    probs = torch.full((1, 1, 100), 0.0099)
    probs[0, 0, 0] = 1 - 99 * 0.0099
    moved = float(EntropyReduced()(probs.log())[0, 0]) - 0.01
    assert moved == pytest.approx((float(probs[0, 0, 0]) - 0.01) / 10, rel=0.06)


@given(seed=st.integers(0, 1000), teachers=st.integers(1, 4), reduction=st.floats(0.05, 2))
def test_streaming_is_the_formula_on_the_stack(seed: int, teachers: int, reduction: float) -> None:
    logits = 4 * torch.randn(teachers, 6, 3, generator=torch.Generator().manual_seed(seed))
    running = (target := EntropyReduced(reduction)).start(6, 3)
    for teacher in logits:
        running.add(teacher)
    oracle = torch.softmax(torch.softmax(logits.double(), 2).mean(0) / reduction, 1).float()
    probs, floor, _ = running.value()
    torch.testing.assert_close(probs, oracle, rtol=1e-4, atol=1e-6)
    assert torch.equal(probs, target(logits))
    torch.testing.assert_close(floor, entropy(probs))


def test_the_reduction_is_no_temperature_of_the_student() -> None:
    assert EntropyReduced(0.1).temperature == 1


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_what_is_not_positive_is_refused(value: float) -> None:
    with pytest.raises(FedfuseError, match="EntropyReduced"):
        EntropyReduced(value)
    with pytest.raises(FedfuseError, match="EntropyReduced"):
        EntropyReduced(temperature=value)


def test_models_can_be_distilled_with_it() -> None:
    ctx = context()
    server = initial(ctx)
    learn = SGD(0.1, epochs=2, batch_size=32)
    algorithm = replace(fedavg(), fuse=Distilled(ensemble=Clients(), target=EntropyReduced(), distiller=learn))
    fused, facts = algorithm.fuse(server, trained(ctx, server, algorithm, range(4)), ctx)
    assert facts.teachers == 4
    assert fused.models.keys() == server.models.keys()
