"""What a round records: disagreement in closed form against all pairs, calibration against numbers by hand."""

from itertools import combinations
from math import log

import pytest
import torch

from fedfuse.fusion.diagnostics import Votes, quality


def test_disagreement_by_hand() -> None:
    # One row, three teachers who say a, a, b: of three pairs two disagree.
    votes = Votes(1, 2)
    for logits in ([1.0, 0.0], [2.0, 1.0], [0.0, 1.0]):
        votes.add(torch.tensor([logits]))
    assert votes.disagreement() == pytest.approx(2 / 3)


def test_disagreement_is_the_mean_over_pairs() -> None:
    logits = torch.randn(6, 40, 4, generator=torch.Generator().manual_seed(0))
    votes = Votes(40, 4)
    for teacher in logits:
        votes.add(teacher)
    classes = logits.argmax(2)
    pairs = [float((classes[i] != classes[j]).double().mean()) for i, j in combinations(range(6), 2)]
    assert votes.disagreement() == pytest.approx(sum(pairs) / len(pairs))


def test_entropy_by_hand_and_one_teacher_agrees_with_itself() -> None:
    votes = Votes(2, 2)
    votes.add(torch.tensor([[0.0, 0.0], [100.0, 0.0]]))
    assert votes.entropy() == pytest.approx(log(2) / 2)
    assert votes.disagreement() == 0.0


def test_quality_by_hand() -> None:
    # Both predicted with 0.8, one of them right: accuracy 1/2, a confidence 0.3 too high.
    probs, y = torch.tensor([[0.8, 0.2], [0.8, 0.2]]), torch.tensor([0, 1])
    measured = quality(probs, y)
    assert measured.accuracy == 0.5
    assert measured.nll == pytest.approx(-(log(0.8) + log(0.2)) / 2)
    assert measured.ece == pytest.approx(0.3)


def test_a_sure_mistake_has_a_finite_likelihood() -> None:
    nll = quality(torch.tensor([[1.0, 0.0]]), torch.tensor([1])).nll
    assert nll is not None
    assert nll < 100
