"""What a round records of its teachers and students, on a probe of the test set: measured, never decided upon."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfuse.data.examples import Examples
from fedfuse.evaluate import Confidence
from fedfuse.fusion.table import outputs
from fedfuse.fusion.target import Accumulator, Target, entropy


def accuracy(scores: Tensor, y: Tensor) -> float:
    """The share of rows whose largest score (N, C) is at the label (N,)."""
    return float((scores.argmax(1) == y).double().mean())


def quality(probs: Tensor, y: Tensor) -> dict[str, float]:
    """Accuracy, negative log likelihood and expected calibration error (15 bins) of (N, C) for labels (N,)."""
    # Imported where it is used: the import takes longer than all others together.
    from torchmetrics.functional.classification import multiclass_calibration_error

    tiny = torch.finfo(probs.dtype).tiny
    return {
        "accuracy": accuracy(probs, y),
        "nll": float(F.nll_loss(probs.clamp(min=tiny).log(), y)),
        "ece": float(multiclass_calibration_error(probs, y, num_classes=probs.shape[1], n_bins=15)),
    }


class Votes:
    """How teachers differ, from counts that do not grow with them."""

    def __init__(self, rows: int, classes: int) -> None:
        self.teachers = 0
        self._counts = torch.zeros(rows, classes, dtype=torch.float64)
        self._entropy = 0.0

    def add(self, logits: Tensor) -> None:
        """One teacher's logits (N, C)."""
        self.teachers += 1
        self._counts += F.one_hot(logits.argmax(1), self._counts.shape[1])
        self._entropy += float(entropy(torch.softmax(logits.double(), 1)).mean())

    def disagreement(self) -> float:
        """The mean over rows and pairs of teachers of how often the two predict different classes.

        Of M teachers of whom c_j predict class j, sum c_j (c_j - 1) of the M (M - 1) ordered pairs agree.
        """
        if self.teachers < 2:
            return 0.0
        agree = (self._counts * (self._counts - 1)).sum(1) / (self.teachers * (self.teachers - 1))
        return float(1 - agree.mean())

    def entropy(self) -> float:
        """The mean entropy of a teacher's prediction, in nats."""
        return self._entropy / max(1, self.teachers)


class Probe:
    """Looks at clients, teachers and the ensemble through the first `size` rows of labeled data."""

    def __init__(self, data: Examples, size: int, target: Target) -> None:
        self._data = data
        self._rows = torch.arange(min(size, len(data)))
        self._y = data.y[self._rows]
        self._target = target
        self._clients: list[float] = []
        self._answers: dict[int, Tensor] = {}  # (N,) each, two bytes a row, until the ensemble is known
        self._confidence: Confidence | None = None  # of all clients together
        self._running: Accumulator | None = None
        self._votes: Votes | None = None

    def look(self, net: nn.Module, name: str) -> Tensor | None:
        """The net's logits (N, C) on the probe; None if the probe is off."""
        return outputs(net, self._data, self._rows, name) if len(self._rows) else None

    def client(self, client: int, logits: Tensor | None) -> None:
        if logits is None:
            return
        self._clients.append(accuracy(logits, self._y))
        self._answers[client] = logits.argmax(1).to(torch.int16)
        seen = Confidence.of(torch.softmax(logits, 1), self._y)
        self._confidence = seen if self._confidence is None else self._confidence + seen

    def teacher(self, logits: Tensor | None, weight: float) -> None:
        if logits is None:
            return
        if self._running is None or self._votes is None:
            self._running = self._target.start(*logits.shape)
            self._votes = Votes(*logits.shape)
        self._running.add(logits, weight)
        self._votes.add(logits)

    def model(self, net: nn.Module, name: str) -> dict[str, Any]:
        """The quality of a single model, by its own probabilities."""
        logits = self.look(net, name)
        return {} if logits is None else self._measured(torch.softmax(logits, 1))

    def _measured(self, probs: Tensor) -> dict[str, Any]:
        return {**quality(probs, self._y), "confidence": Confidence.of(probs, self._y).facts()}

    def facts(self) -> dict[str, Any]:
        """The clients' accuracies, and the ensemble as the student is to learn it (sharpened, softened)."""
        facts: dict[str, Any] = {}
        if self._clients:
            mean = math.fsum(self._clients) / len(self._clients)
            facts["clients"] = {"mean": mean, "worst": min(self._clients), "best": max(self._clients)}
        if self._confidence is not None:
            facts["clients"]["confidence"] = self._confidence.facts()
        if self._running is not None and self._votes is not None:
            differ = {"disagreement": self._votes.disagreement(), "entropy": self._votes.entropy()}
            probs = self._running.value()
            facts["ensemble"] = {**self._measured(probs), **differ}
            facts["agreement"] = self._agreement(probs)
        return facts

    def _agreement(self, probs: Tensor) -> dict[str, float]:
        """For each client how often it and the ensemble, of probabilities (N, C), give the same answer."""
        together = probs.argmax(1)
        return {str(client): float((own == together).double().mean()) for client, own in sorted(self._answers.items())}
