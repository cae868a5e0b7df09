"""Evaluate a net on labeled data: accuracy and loss, and details by class and by confidence."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfuse.data.examples import Examples
from fedfuse.facts import ConfidenceBins, Score
from fedfuse.predict import BATCH, predict

BINS = 15  # of confidence


@dataclass(frozen=True)
class Details:
    """The predictions of one net, by class and by confidence."""

    confusion: list[list[int]]  # (C, C): rows are true classes, columns predicted ones
    confidence: ConfidenceBins


def confidence_bins(probs: Tensor, y: Tensor) -> ConfidenceBins:
    """Sort predictions, probabilities (N, C) for labels (N,), into `BINS` equal bins of the largest probability."""
    confidence, prediction = probs.double().max(1)
    confidence = confidence.nan_to_num(0.0)  # of logits that overflowed
    # A bin is (low, high]; rounding may push a probability of 1 just above.
    place = (confidence * BINS).ceil().long().clamp(1, BINS) - 1
    count = torch.bincount(place, minlength=BINS)
    right = torch.bincount(place[prediction == y], minlength=BINS)
    total = torch.bincount(place, weights=confidence, minlength=BINS)
    return ConfidenceBins(right.tolist(), (count - right).tolist(), total.tolist())


def accuracy(scores: Tensor, y: Tensor) -> float:
    """Return the share of rows whose largest score (N, C) is at the label (N,)."""
    return float((scores.argmax(1) == y).double().mean())


def evaluate(net: nn.Module, data: Examples, batch_size: int = BATCH) -> Score:
    """Return accuracy and mean cross entropy, in eval mode. The net's mode is restored."""
    return _score(predict(net, data, torch.arange(len(data)), batch_size), data.y)


def evaluate_in_detail(net: nn.Module, data: Examples) -> tuple[Score, Details]:
    """Return the same score as `evaluate`, and the details."""
    logits = predict(net, data, torch.arange(len(data)), BATCH)
    classes = logits.shape[1]
    pairs = torch.bincount(data.y * classes + logits.argmax(1), minlength=classes * classes)
    details = Details(pairs.view(classes, classes).tolist(), confidence_bins(torch.softmax(logits, 1), data.y))
    return _score(logits, data.y), details


def _score(logits: Tensor, y: Tensor) -> Score:
    right = int((logits.argmax(1) == y).sum())
    return Score(right / len(y), float(F.cross_entropy(logits.double(), y)))
