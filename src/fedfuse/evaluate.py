"""How a net does on labeled data: accuracy and loss, and in detail by class and by confidence."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfuse.data.examples import Examples
from fedfuse.predict import BATCH, predict


@dataclass(frozen=True)
class Score:
    accuracy: float
    loss: float


BINS = 15  # of confidence, as in the calibration error that a round records


@dataclass(frozen=True)
class Confidence:
    """Answers by how sure they were: `BINS` equal bins of the largest probability."""

    right: Tensor  # (BINS,) int64: how many of them were right
    wrong: Tensor  # (BINS,)
    total: Tensor  # (BINS,) float64: the sum of their confidences

    @staticmethod
    def of(probs: Tensor, y: Tensor) -> Confidence:
        """Of probabilities (N, C) for labels (N,)."""
        sure, answer = probs.double().max(1)
        # A bin is (low, high]; rounding may push a probability of 1 just above.
        place = (sure * BINS).ceil().long().clamp(1, BINS) - 1
        right = answer == y
        count = torch.bincount(place, minlength=BINS)
        hits = torch.bincount(place[right], minlength=BINS)
        return Confidence(hits, count - hits, torch.bincount(place, weights=sure, minlength=BINS))

    def __add__(self, other: Confidence) -> Confidence:
        return Confidence(self.right + other.right, self.wrong + other.wrong, self.total + other.total)

    def facts(self) -> dict[str, list[int] | list[float]]:
        """As a record holds it."""
        return {"right": self.right.tolist(), "wrong": self.wrong.tolist(), "total": self.total.tolist()}


@dataclass(frozen=True)
class Details:
    """The answers of one net, by class and by confidence."""

    confusion: Tensor  # (C, C) int64: rows are true classes, columns the answers
    confidence: Confidence

    def facts(self) -> dict[str, object]:
        return {"confusion": self.confusion.tolist(), "confidence": self.confidence.facts()}


def evaluate(net: nn.Module, data: Examples, batch_size: int = BATCH) -> Score:
    """The share of right answers and the mean cross entropy, in eval mode; the net's mode is restored."""
    return _score(predict(net, data, torch.arange(len(data)), batch_size), data.y)


def examine(net: nn.Module, data: Examples) -> tuple[Score, Details]:
    """The same, and the details."""
    logits = predict(net, data, torch.arange(len(data)), BATCH)
    classes = logits.shape[1]
    pairs = torch.bincount(data.y * classes + logits.argmax(1), minlength=classes * classes)
    details = Details(pairs.view(classes, classes), Confidence.of(torch.softmax(logits, 1), data.y))
    return _score(logits, data.y), details


def _score(logits: Tensor, y: Tensor) -> Score:
    right = int((logits.argmax(1) == y).sum())
    return Score(right / len(y), float(F.cross_entropy(logits.double(), y)))
