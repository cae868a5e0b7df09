"""Targets: what the teachers say of the pool -> the soft labels (N, C) that the student learns.

A target is called on stacked logits (M, N, C), or started and given one teacher's logits (N, C) at a time. The
stacked call goes through the streaming one, so the two cannot differ. A target that needs every teacher at once
(a median) starts a `fedfuse.fusion.table.Tabled`, which keeps the table for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedfuse.types import FedfuseError


class Dissent(NamedTuple):
    """What the teachers say who disagree with the labels."""

    probs: Tensor  # (N, C); 0 where there are none
    mass: Tensor  # (N,) their share of the weight


class Accumulator(Protocol):
    """A target on its way: teachers are added one at a time and not kept."""

    @property
    def dissent(self) -> Dissent | None:
        """Who disagreed, where the target heeds it."""

    def add(self, logits: Tensor, weight: float = 1.0) -> None:
        """One teacher's logits (N, C)."""

    def value(self) -> Tensor:
        """The soft labels (N, C)."""

    def floor(self) -> Tensor:
        """What is subtracted from each row's cross entropy (N,), so that a perfect student's loss is reported right."""


class Target(Protocol):
    @property
    def temperature(self) -> float:
        """Softens teachers and student alike; the loss is multiplied by its square, as Hinton et al. (2015) do."""

    def start(self, rows: int, classes: int) -> Accumulator: ...


def as_stack(logits: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Logits (M, N, C) and weights (M,), all 1 if not given; an error where they do not fit."""
    if logits.dim() != 3 or len(logits) == 0:
        raise FedfuseError(f"a target takes logits (M, N, C) of at least one teacher, not {tuple(logits.shape)}")
    shares = torch.ones(len(logits)) if weights is None else weights
    if len(shares) != len(logits):
        raise FedfuseError(f"{len(shares)} weights were given for {len(logits)} teachers: give one each")
    for share in shares.tolist():
        accepted(share)
    return logits, shares


def stacked(target: Target, logits: Tensor, weights: Tensor | None) -> Tensor:
    """Logits (M, N, C) and weights (M,) -> soft labels (N, C), through the streaming path."""
    logits, shares = as_stack(logits, weights)
    running = target.start(logits.shape[1], logits.shape[2])
    for teacher, share in zip(logits, shares.tolist(), strict=True):
        running.add(teacher, share)
    return running.value()


def entropy(probs: Tensor) -> Tensor:
    """(N, C) -> (N,), in nats."""
    return -torch.xlogy(probs, probs).sum(1)


def accepted(weight: float) -> float:
    if not 0 <= weight < math.inf:
        raise FedfuseError(f"a teacher was given the weight {weight}: weights must be finite and not negative")
    return weight


@dataclass(frozen=True)
class MeanLogits:
    """softmax(mean of the logits / temperature): FedDF's AVGLOGITS."""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        _positive(self, "temperature", self.temperature)

    def start(self, rows: int, classes: int) -> Accumulator:
        return _Mean(rows, classes, lambda logits: logits, lambda mean: torch.softmax(mean / self.temperature, 1))

    def __call__(self, logits: Tensor, weights: Tensor | None = None) -> Tensor:
        return stacked(self, logits, weights)


@dataclass(frozen=True)
class MeanProbs:
    """The mean of the teachers' probabilities p, then sharpened to p^s / sum p^s: FedBE's, with s = 2."""

    sharpen: float = 1.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        _positive(self, "temperature", self.temperature)
        _positive(self, "sharpen", self.sharpen)

    def start(self, rows: int, classes: int) -> Accumulator:
        return _Mean(rows, classes, lambda logits: torch.softmax(logits / self.temperature, 1), self._sharpened)

    def _sharpened(self, probs: Tensor) -> Tensor:
        powered = probs.pow(self.sharpen)
        return powered / powered.sum(1, keepdim=True)

    def __call__(self, logits: Tensor, weights: Tensor | None = None) -> Tensor:
        return stacked(self, logits, weights)


@dataclass(frozen=True)
class MeanLosses:
    """The mean over teachers k of KL(p_k || student).

    It is KL(mean p || student) plus H(mean p) - mean H(p_k), which the student cannot change: so the labels are
    the mean probabilities, with the same gradient, and only the reported loss differs.
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        _positive(self, "temperature", self.temperature)

    def start(self, rows: int, classes: int) -> Accumulator:
        return _MeanLosses(rows, classes, self.temperature)

    def __call__(self, logits: Tensor, weights: Tensor | None = None) -> Tensor:
        return stacked(self, logits, weights)


class _Mean:
    """finish(mean over teachers of each(logits)). Summed in double precision: the order of teachers is then lost."""

    dissent = None

    def __init__(
        self, rows: int, classes: int, each: Callable[[Tensor], Tensor], finish: Callable[[Tensor], Tensor]
    ) -> None:
        self._sum = torch.zeros(rows, classes, dtype=torch.float64)
        self._weight = 0.0
        self._each = each
        self._finish = finish

    def add(self, logits: Tensor, weight: float = 1.0) -> None:
        self._sum.add_(self._each(logits.detach().to("cpu", torch.float64)), alpha=accepted(weight))
        self._weight += weight

    def value(self) -> Tensor:
        if self._weight == 0:
            raise FedfuseError("no teacher with a weight above 0 has taught: there is no target")
        return self._finish(self._sum / self._weight).to(torch.float32)

    def floor(self) -> Tensor:
        return entropy(self.value())


class _MeanLosses:
    """Mean probabilities, and beside them the mean entropy of the teachers."""

    dissent = None

    def __init__(self, rows: int, classes: int, temperature: float) -> None:
        self._temperature = temperature
        self._probs = _Mean(rows, classes, lambda probs: probs, lambda mean: mean)
        self._entropy = _Mean(rows, 1, lambda each: each, lambda mean: mean)

    def add(self, logits: Tensor, weight: float = 1.0) -> None:
        probs = torch.softmax(logits.detach().to("cpu", torch.float64) / self._temperature, 1)
        self._probs.add(probs, weight)
        self._entropy.add(entropy(probs).unsqueeze(1), weight)

    def value(self) -> Tensor:
        return self._probs.value()

    def floor(self) -> Tensor:
        return self._entropy.value().squeeze(1)


def _positive(target: object, name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise FedfuseError(f"{type(target).__name__}({name}={value}): it must be positive; 1 changes nothing")
