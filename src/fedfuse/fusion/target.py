"""Targets: the teachers' logits on the pool -> the soft labels (N, C) that the student learns.

A target is called on stacked logits (M, N, C), or started and given one teacher's logits (N, C) at a time. The
stacked call uses the streaming one, so the two cannot differ. A target that needs all teachers at once (a median)
starts a `fedfuse.fusion.table.TableTarget`, which keeps the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedfuse import bounds
from fedfuse.types import FedfuseError


class Diversity(NamedTuple):
    """The teachers that disagree with the labels (Fed-ET)."""

    probs: Tensor  # (N, C) their joint probabilities; 0 where there are none
    mass: Tensor  # (N,) their share of the weight


class TargetValue(NamedTuple):
    """The soft labels, and the least possible cross entropy with them, subtracted so that a perfect loss is 0."""

    probs: Tensor  # (N, C)
    floor: Tensor  # (N,)
    diversity: Diversity | None = None  # where the target computes it

    @staticmethod
    def of(probs: Tensor) -> TargetValue:
        """Return labels with their entropy as floor, so that the loss is KL(labels || student)."""
        return TargetValue(probs, entropy(probs))


class RunningTarget(Protocol):
    """The target of one round. Teachers are added one at a time and not kept, unless the target needs them all."""

    def add(self, logits: Tensor, weight: float = 1.0) -> None:
        """Add one teacher's logits (N, C)."""

    def value(self) -> TargetValue: ...


class Target(Protocol):
    @property
    def temperature(self) -> float:
        """Divides the logits of teachers and student; the loss is multiplied by its square (Hinton et al., 2015)."""

    def start(self, rows: int, classes: int) -> RunningTarget: ...


def as_stack(logits: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return logits (M, N, C) and weights (M,), by default all 1. Raise an error if they do not fit."""
    if logits.dim() != 3 or len(logits) == 0:
        raise FedfuseError(f"a target takes logits (M, N, C) of at least one teacher, not {tuple(logits.shape)}")
    shares = torch.ones(len(logits)) if weights is None else weights
    if len(shares) != len(logits):
        raise FedfuseError(f"{len(shares)} weights were given for {len(logits)} teachers: give one each")
    for share in shares.tolist():
        checked_weight(share)
    return logits, shares


def on_stack(target: Target, logits: Tensor, weights: Tensor | None) -> Tensor:
    """Logits (M, N, C) and weights (M,) -> soft labels (N, C), through the streaming path."""
    logits, shares = as_stack(logits, weights)
    running = target.start(logits.shape[1], logits.shape[2])
    for teacher, share in zip(logits, shares.tolist(), strict=True):
        running.add(teacher, share)
    return running.value().probs


def entropy(probs: Tensor) -> Tensor:
    """(N, C) -> (N,), in nats."""
    return -torch.xlogy(probs, probs).sum(1)


def checked_weight(weight: float) -> float:
    if not 0 <= weight < math.inf:
        raise FedfuseError(f"a teacher was given the weight {weight}: weights must be finite and not negative")
    return weight


@dataclass(frozen=True)
class MeanLogits:
    """softmax(mean of the logits / temperature): FedDF's AVGLOGITS."""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        bounds.positive(self, "1 changes nothing", temperature=self.temperature)

    def start(self, rows: int, classes: int) -> RunningTarget:
        return _MeanTarget(rows, classes, lambda logits: logits, self._softmax)

    def _softmax(self, mean: Tensor) -> Tensor:
        return torch.softmax(mean / self.temperature, 1)

    def __call__(self, logits: Tensor, weights: Tensor | None = None) -> Tensor:
        return on_stack(self, logits, weights)


@dataclass(frozen=True)
class MeanProbs:
    """The mean of the teachers' probabilities p, then sharpened to p^s / sum p^s: FedBE's, with s = 2."""

    sharpen: float = 1.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        bounds.positive(self, "1 changes nothing", sharpen=self.sharpen, temperature=self.temperature)

    def start(self, rows: int, classes: int) -> RunningTarget:
        return _MeanTarget(rows, classes, lambda logits: torch.softmax(logits / self.temperature, 1), self._sharpen)

    def _sharpen(self, probs: Tensor) -> Tensor:
        powers = probs.pow(self.sharpen)
        return powers / powers.sum(1, keepdim=True)

    def __call__(self, logits: Tensor, weights: Tensor | None = None) -> Tensor:
        return on_stack(self, logits, weights)


@dataclass(frozen=True)
class MeanLosses:
    """The mean over teachers k of KL(p_k || student).

    It is KL(mean p || student) plus H(mean p) - mean H(p_k), which does not depend on the student. So the labels are
    the mean probabilities, which give the same gradient, and only the reported loss differs.
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        bounds.positive(self, "1 changes nothing", temperature=self.temperature)

    def start(self, rows: int, classes: int) -> RunningTarget:
        return _MeanLossesTarget(rows, classes, self.temperature)

    def __call__(self, logits: Tensor, weights: Tensor | None = None) -> Tensor:
        return on_stack(self, logits, weights)


class _RunningRows:
    """The weighted mean over teachers of (N, C) each, in double precision, so that their order does not matter."""

    def __init__(self, rows: int, columns: int) -> None:
        self._sum = torch.zeros(rows, columns, dtype=torch.float64)
        self._weight = 0.0

    def add(self, values: Tensor, weight: float) -> None:
        self._sum.add_(values, alpha=checked_weight(weight))
        self._weight += weight

    def value(self) -> Tensor:
        if self._weight == 0:
            raise FedfuseError("no teacher has a weight above 0: add one that has")
        return self._sum / self._weight


class _MeanTarget:
    """finish(mean over teachers of each(logits))."""

    def __init__(
        self, rows: int, classes: int, each: Callable[[Tensor], Tensor], finish: Callable[[Tensor], Tensor]
    ) -> None:
        self._mean, self._each, self._finish = _RunningRows(rows, classes), each, finish

    def add(self, logits: Tensor, weight: float = 1.0) -> None:
        self._mean.add(self._each(logits.detach().to("cpu", torch.float64)), weight)

    def value(self) -> TargetValue:
        return TargetValue.of(self._finish(self._mean.value()).to(torch.float32))


class _MeanLossesTarget:
    """Mean probabilities, with the teachers' mean entropy as floor."""

    def __init__(self, rows: int, classes: int, temperature: float) -> None:
        self._temperature = temperature
        self._probs, self._entropy = _RunningRows(rows, classes), _RunningRows(rows, 1)

    def add(self, logits: Tensor, weight: float = 1.0) -> None:
        probs = torch.softmax(logits.detach().to("cpu", torch.float64) / self._temperature, 1)
        self._probs.add(probs, weight)
        self._entropy.add(entropy(probs).unsqueeze(1), weight)

    def value(self) -> TargetValue:
        floor = self._entropy.value().to(torch.float32).squeeze(1)
        return TargetValue(self._probs.value().to(torch.float32), floor)
