"""What a round records of its teachers and students, on a probe of the test set: measured, never decided upon."""

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
    """Accuracy, negative log likelihood and calibration of probabilities (N, C) for labels (N,)."""
    bins = confidence_bins(probs, y)
    nll = float(F.nll_loss(probs.clamp(min=torch.finfo(probs.dtype).tiny).log(), y))
    return Quality(accuracy(probs, y), nll, bins.calibration_error, bins)


class Votes:
    """How teachers differ, from counts that do not grow with them."""

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


class Diagnostics:
    """Clients, teachers and ensemble on the first `size` rows of labeled data; without rows it measures nothing."""

    def __init__(self, data: Examples, size: int, target: Target) -> None:
        self._data = data
        self._rows = torch.arange(min(size, len(data)))
        self._y = data.y[self._rows]
        self._target = target
        self._accuracies: list[float] = []  # of the clients
        self._predictions: dict[int, Tensor] = {}  # (N,) of each client, two bytes a row
        self._confidence: ConfidenceBins | None = None  # of all clients together
        self._running: RunningTarget | None = None
        self._votes: Votes | None = None

    def logits(self, net: nn.Module, name: str) -> Tensor | None:
        """Compute the net's logits (N, C) on the probe; None if the probe is off."""
        return logits_of(net, self._data, self._rows, name) if len(self._rows) else None

    def add_client(self, client: int, logits: Tensor | None) -> None:
        if logits is None:
            return
        self._accuracies.append(accuracy(logits, self._y))
        self._predictions[client] = logits.argmax(1).to(torch.int16)
        bins = confidence_bins(torch.softmax(logits, 1), self._y)
        self._confidence = bins if self._confidence is None else self._confidence + bins

    def add_teacher(self, logits: Tensor | None, weight: float) -> None:
        if logits is None:
            return
        if self._running is None or self._votes is None:
            self._running = self._target.start(*logits.shape)
            self._votes = Votes(*logits.shape)
        self._running.add(logits, weight)
        self._votes.add(logits)

    def quality(self, net: nn.Module, name: str) -> Quality:
        """The quality of one model, by its own probabilities."""
        logits = self.logits(net, name)
        return Quality() if logits is None else quality(torch.softmax(logits, 1), self._y)

    def value(self) -> Facts:
        """The clients' accuracies, and the ensemble as the student learns it (sharpened, softened)."""
        if not self._accuracies and self._running is None:
            return Facts()
        spread = Spread.of(self._accuracies) if self._accuracies else None
        clients = None if spread is None else ClientQuality(spread.mean, spread.worst, spread.best, self._confidence)
        if self._running is None or self._votes is None:
            return Facts(clients=clients)
        probs = self._running.value().probs
        measured = quality(probs, self._y)
        ensemble = EnsembleQuality(
            measured.accuracy, measured.nll, measured.ece, measured.confidence,
            disagreement=self._votes.disagreement(), entropy=self._votes.entropy(),
        )  # fmt: skip
        return Facts(clients=clients, ensemble=ensemble, agreement=self._agreement(probs))

    def _agreement(self, probs: Tensor) -> dict[str, float]:
        """For each client how often it and the ensemble, of probabilities (N, C), predict the same class."""
        together = probs.argmax(1)
        each = sorted(self._predictions.items())
        return {str(client): float((own == together).double().mean()) for client, own in each}
