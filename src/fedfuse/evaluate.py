"""Accuracy and loss of a net on labeled data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from fedfuse.data.examples import Examples


@dataclass(frozen=True)
class Score:
    accuracy: float
    loss: float


@torch.no_grad()
def evaluate(net: nn.Module, data: Examples, batch_size: int = 512) -> Score:
    """The share of right answers and the mean cross entropy, in eval mode; the net's mode is restored."""
    training = net.training
    net.eval()
    right, loss = 0, 0.0
    for rows in torch.split(torch.arange(len(data)), batch_size):
        logits, y = net(data.batch(rows)), data.y[rows]
        right += int((logits.argmax(1) == y).sum())
        loss += float(F.cross_entropy(logits, y, reduction="sum"))
    net.train(training)
    return Score(right / len(data), loss / len(data))
