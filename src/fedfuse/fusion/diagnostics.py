"""What a round records about its teachers and students, measured on a probe of the test set. No decision uses it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfuse.data.examples import Examples
from fedfuse.evaluate import accuracy, confidence_bins
from fedfuse.facts import ClientQuality, ConfidenceBins, EnsembleQuality, Facts, Quality, Spread
from fedfuse.fusion.table import logits_of
from fedfuse.fusion.target import RunningTarget, Target, entropy


def quality(probs: Tensor, y: Tensor) -> Quality:
    """Return accuracy, negative log likelihood and calibration of probabilities (N, C) for labels (N,)."""
    bins = confidence_bins(probs, y)
    nll = float(F.nll_loss(probs.clamp(min=torch.finfo(probs.dtype).tiny).log(), y))
    return Quality(accuracy(probs, y), nll, bins.calibration_error, bins)


class Votes:
    """How much teachers differ, from counts whose size does not depend on the number of teachers."""

    def __init__(self, rows: int, classes: int) -> None:
        self.teachers = 0
        self._counts = torch.zeros(rows, classes, dtype=torch.float64)
        self._entropy = 0.0

    def add(self, logits: Tensor) -> None:
        """Add one teacher's logits (N, C)."""
        self.teachers += 1
        self._counts += F.one_hot(logits.argmax(1), self._counts.shape[1])
        self._entropy += float(entropy(torch.softmax(logits.double(), 1)).mean())

    def disagreement(self) -> float:
        """Return the share of rows and pairs of teachers in which the two predict different classes.

        If c_j of M teachers predict class j, sum c_j (c_j - 1) of the M (M - 1) ordered pairs agree.
        """
        if self.teachers < 2:
            return 0.0
        agree = (self._counts * (self._counts - 1)).sum(1) / (self.teachers * (self.teachers - 1))
        return float(1 - agree.mean())

    def entropy(self) -> float:
        """Return the mean entropy of a teacher's prediction, in nats."""
        return self._entropy / max(1, self.teachers)


class _Models:
    """Accuracies and confidences of several models, each by itself."""

    def __init__(self) -> None:
        self._accuracies: list[float] = []
        self._confidence: ConfidenceBins | None = None

    def add(self, logits: Tensor, y: Tensor) -> None:
        """Add one model's logits (N, C) for labels (N,)."""
        self._accuracies.append(accuracy(logits, y))
        bins = confidence_bins(torch.softmax(logits, 1), y)
        self._confidence = bins if self._confidence is None else self._confidence + bins

    def value(self) -> ClientQuality | None:
        if not self._accuracies:
            return None
        spread = Spread.of(self._accuracies)
        return ClientQuality(spread.mean, spread.worst, spread.best, self._confidence)


class Diagnostics:
    """Measures clients, teachers and ensemble on the first `size` rows of labeled data; without rows, nothing."""

    def __init__(self, data: Examples, size: int, target: Target) -> None:
        self._data = data
        self._rows = torch.arange(min(size, len(data)))
        self._y = data.y[self._rows]
        self._target = target
        self._clients, self._samples = _Models(), _Models()
        self._predictions: dict[int, Tensor] = {}  # (N,) of each client, two bytes a row
        self._running: RunningTarget | None = None
        self._votes: Votes | None = None

    def logits(self, net: nn.Module, name: str) -> Tensor | None:
        """Compute the net's logits (N, C) on the probe; None if the probe is off."""
        return logits_of(net, self._data, self._rows, name) if len(self._rows) else None

    def add_client(self, client: int, logits: Tensor | None) -> None:
        if logits is None:
            return
        self._clients.add(logits, self._y)
        self._predictions[client] = logits.argmax(1).to(torch.int16)

    def add_sample(self, logits: Tensor | None) -> None:
        """Add one model that was drawn from a posterior."""
        if logits is not None:
            self._samples.add(logits, self._y)

    def add_teacher(self, logits: Tensor | None, weight: float) -> None:
        if logits is None:
            return
        if self._running is None or self._votes is None:
            self._running = self._target.start(*logits.shape)
            self._votes = Votes(*logits.shape)
        self._running.add(logits, weight)
        self._votes.add(logits)

    def quality(self, net: nn.Module, name: str) -> Quality:
        """Return the quality of one model's own probabilities."""
        logits = self.logits(net, name)
        return Quality() if logits is None else quality(torch.softmax(logits, 1), self._y)

    def value(self) -> Facts:
        """Return the clients' accuracies, and the quality of the labels for the student (sharpened, softened)."""
        clients, samples = self._clients.value(), self._samples.value()
        if self._running is None or self._votes is None:
            return Facts(clients=clients)
        probs = self._running.value().probs
        score = quality(probs, self._y)
        ensemble = EnsembleQuality(
            score.accuracy, score.nll, score.ece, score.confidence,
            disagreement=self._votes.disagreement(), entropy=self._votes.entropy(),
        )  # fmt: skip
        return Facts(clients=clients, samples=samples, ensemble=ensemble, agreement=self._agreement(probs))

    def _agreement(self, probs: Tensor) -> dict[str, float]:
        """Return how often each client predicts the same class as the ensemble, with probabilities (N, C)."""
        ensemble = probs.argmax(1)
        each = sorted(self._predictions.items())
        return {str(client): float((own == ensemble).double().mean()) for client, own in each}
