"""Answers by class and by confidence, counted by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedfuse.data.examples import Examples
from fedfuse.evaluate import BINS, Confidence, evaluate, examine
from fedfuse.fusion.diagnostics import quality


def test_bins_by_hand() -> None:
    # Confidences 0.55 (bin 9: 8/15 to 9/15), 0.95 and 1.0 (bin 15); the second one is wrong.
    probs = torch.tensor([[0.55, 0.45], [0.95, 0.05], [0.0, 1.0]])
    seen = Confidence.of(probs, torch.tensor([0, 1, 1]))
    assert (seen.right[8], seen.wrong[8], float(seen.total[8])) == (1, 0, pytest.approx(0.55))
    assert (seen.right[14], seen.wrong[14], float(seen.total[14])) == (1, 1, pytest.approx(1.95))
    assert int((seen.right + seen.wrong).sum()) == 3


def test_the_calibration_error_is_that_of_the_bins() -> None:
    generator = torch.Generator().manual_seed(0)
    probs = torch.softmax(3 * torch.randn(500, 4, generator=generator), 1)
    y = torch.randint(4, (500,), generator=generator)
    seen = Confidence.of(probs, y)
    error = ((seen.right - seen.total).abs() / 500).sum()
    assert float(error) == pytest.approx(quality(probs, y)["ece"], abs=1e-6)
    halves = Confidence.of(probs[:200], y[:200]) + Confidence.of(probs[200:], y[200:])
    assert torch.equal(halves.right, seen.right)
    assert torch.equal(halves.wrong, seen.wrong)
    assert len(seen.total) == BINS


def test_confusion_by_hand() -> None:
    # The net answers with its input: true classes 0, 0, 1, 2 are answered 0, 1, 1, 0.
    x = torch.eye(3)[[0, 1, 1, 0]]
    data = Examples(x, torch.tensor([0, 0, 1, 2]), 3, torch.zeros(3), torch.ones(3))
    net = nn.Identity()
    score, details = examine(net, data)
    assert details.confusion.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 0]]
    assert score.accuracy == 0.5
    assert score == evaluate(net, data)
