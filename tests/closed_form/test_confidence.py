"""Answers by class and by confidence, counted by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedfuse.data.examples import Examples
from fedfuse.evaluate import BINS, confidence_bins, evaluate, evaluate_in_detail
from fedfuse.fusion.diagnostics import quality


def test_bins_by_hand() -> None:
    # Confidences 0.55 (bin 9: 8/15 to 9/15), 0.95 and 1.0 (bin 15); the second one is wrong.
    probs = torch.tensor([[0.55, 0.45], [0.95, 0.05], [0.0, 1.0]])
    bins = confidence_bins(probs, torch.tensor([0, 1, 1]))
    assert (bins.right[8], bins.wrong[8], bins.total[8]) == (1, 0, pytest.approx(0.55))
    assert (bins.right[14], bins.wrong[14], bins.total[14]) == (1, 1, pytest.approx(1.95))
    assert sum(bins.count) == 3
    # |1 - 0.55| in bin 9 and |1 - 1.95| in bin 15, over three answers.
    assert bins.calibration_error == pytest.approx((0.45 + 0.95) / 3)


def test_predictions_that_are_not_numbers_have_no_confidence() -> None:
    bins = confidence_bins(torch.tensor([[torch.nan, torch.nan], [0.0, 1.0]]), torch.tensor([0, 1]))
    assert (sum(bins.count), bins.total[0], bins.total[-1]) == (2, 0.0, 1.0)


def test_the_calibration_error_is_that_of_the_bins() -> None:
    generator = torch.Generator().manual_seed(0)
    probs = torch.softmax(3 * torch.randn(500, 4, generator=generator), 1)
    y = torch.randint(4, (500,), generator=generator)
    confidence, answer = probs.double().max(1)
    error = 0.0
    for i in range(BINS):
        inside = (confidence > i / BINS) & (confidence <= (i + 1) / BINS)
        if inside.any():
            gap = (answer[inside] == y[inside]).double().mean() - confidence[inside].mean()
            error += float(inside.double().mean() * gap.abs())
    assert quality(probs, y).ece == pytest.approx(error)
    bins = confidence_bins(probs, y)
    halves = confidence_bins(probs[:200], y[:200]) + confidence_bins(probs[200:], y[200:])
    assert (halves.right, halves.wrong) == (bins.right, bins.wrong)
    assert halves.total == pytest.approx(bins.total)
    assert len(bins.total) == BINS


def test_confusion_by_hand() -> None:
    # The net answers with its input: true classes 0, 0, 1, 2 are answered 0, 1, 1, 0.
    x = torch.eye(3)[[0, 1, 1, 0]]
    data = Examples(x, torch.tensor([0, 0, 1, 2]), 3, torch.zeros(3), torch.ones(3))
    net = nn.Identity()
    score, details = evaluate_in_detail(net, data)
    assert details.confusion == [[1, 1, 0], [0, 1, 0], [1, 0, 0]]
    assert score.accuracy == 0.5
    assert score == evaluate(net, data)
