"""Accuracy and loss of a net on labeled data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from fedfuse.data.examples import Examples
from fedfuse.predict import BATCH, predict


@dataclass(frozen=True)
class Score:
    accuracy: float
    loss: float


def evaluate(net: nn.Module, data: Examples, batch_size: int = BATCH) -> Score:
    """The share of right answers and the mean cross entropy, in eval mode; the net's mode is restored."""
    logits = predict(net, data, torch.arange(len(data)), batch_size)
    right = int((logits.argmax(1) == data.y).sum())
    return Score(right / len(data), float(F.cross_entropy(logits.double(), data.y)))
