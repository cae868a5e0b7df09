"""Fed-ET's consensus: confident teachers weigh more, and those who disagree with the outcome are heard beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedfuse.fusion.labelling import SoftLabels
from fedfuse.fusion.table import Tabled
from fedfuse.fusion.target import Accumulator, Dissent, as_stack, entropy
from fedfuse.types import FedfuseError


class Consensus(NamedTuple):
    """What M teachers say together of N inputs."""

    consensus: Tensor  # (N, C) the variance-weighted sum of their probabilities
    labels: Tensor  # (N,) its largest class
    diversity: Tensor  # (N, C) the same over those whose own class is another, as a distribution; 0 without any
    mass: Tensor  # (N,) the share of the weight that they have


@dataclass(frozen=True)
class VarianceWeighted:
    """Teachers weigh by the variance of their C probabilities, input by input (Fed-ET, Equations 2 to 8).

    A teacher that is sure of a class has a high variance, one that has no idea has none. The weights of those who
    disagree (Equation 8) are normalised over all teachers, so they sum to `mass`: less than 1, unless the consensus's
    class is nobody's own. As the target of a student it is the consensus; the dissent stands beside it for
    `ConsensusWithDiversity`.
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise FedfuseError(f"VarianceWeighted(temperature={self.temperature}): it must be positive")

    def __call__(self, logits: Tensor, weights: Tensor | None = None) -> Consensus:
        """Logits (M, N, C); each teacher's variance is multiplied by its weight (M,), by default 1."""
        logits, shares = as_stack(logits, weights)
        probs = torch.softmax(logits.double() / self.temperature, 2)
        confidence = shares.double()[:, None] * probs.var(2, unbiased=False)  # (M, N)
        total = confidence.sum(0)
        # Where nobody has any idea, all variances are 0 and teachers count alike.
        alike = (shares / shares.sum()).double()[:, None]
        alpha = torch.where(total > 0, confidence / total.clamp(min=torch.finfo(total.dtype).tiny), alike)
        consensus = torch.einsum("mn,mnc->nc", alpha, probs)
        labels = consensus.argmax(1)
        against = alpha * (probs.argmax(2) != labels)
        mass = against.sum(0)
        diversity = torch.einsum("mn,mnc->nc", against, probs)
        diversity /= diversity.sum(1, keepdim=True).clamp(min=torch.finfo(mass.dtype).tiny)
        return Consensus(consensus.float(), labels, diversity.float(), mass.float())

    def start(self, rows: int, classes: int) -> Accumulator:
        return _Gathering(self, rows, classes)


class _Gathering(Tabled):
    """Who disagrees is known only when all have spoken: then once, for the labels and the dissent."""

    def __init__(self, target: VarianceWeighted, rows: int, classes: int) -> None:
        super().__init__(lambda logits, weights: target(logits, weights).consensus, rows, classes)
        self._reach = target
        self._reached: Consensus | None = None

    def add(self, logits: Tensor, weight: float = 1.0) -> None:
        super().add(logits, weight)
        self._reached = None

    def _consensus(self) -> Consensus:
        if self._reached is None:
            self._reached = Consensus(*(torch.cat(parts) for parts in zip(*self.each(self._reach), strict=True)))
        return self._reached

    def value(self) -> Tensor:
        return self._consensus().consensus

    @property
    def dissent(self) -> Dissent:
        reached = self._consensus()
        return Dissent(reached.diversity, reached.mass)


@dataclass(frozen=True)
class ConsensusWithDiversity:
    """Fed-ET's loss (Equation 10): cross entropy with the consensus's class, plus lam KL(diversity || student).

    Equation 9 takes the KL of an s_div that does not sum to 1. With `weight` "mass" it is that of the distribution,
    times its mass: the gradient is the same as that of the equation's, and where all agree the term is exactly 0.
    With "plain" every input with a dissenter counts in full.
    """

    lam: float = 0.05
    weight: Literal["mass", "plain"] = "mass"

    def __post_init__(self) -> None:
        if not 0 <= self.lam < math.inf:
            raise FedfuseError(
                f"ConsensusWithDiversity(lam={self.lam}): lam must not be negative; 0 is consensus alone"
            )

    def learnt(self, labels: SoftLabels) -> SoftLabels:
        if labels.dissent is None:
            raise FedfuseError("ConsensusWithDiversity needs to know who disagrees: its target is VarianceWeighted()")
        diversity, mass = labels.dissent
        weight = self.lam * (mass if self.weight == "mass" else (mass > 0).float())
        hard = F.one_hot(labels.probs.argmax(1), labels.probs.shape[1])
        # The loss is linear in the labels, so the two terms are one cross entropy with labels that sum to 1 + weight.
        both = hard + weight[:, None] * diversity
        return replace(labels, probs=both, floor=weight * entropy(diversity), dissent=None)
