"""Fed-ET's consensus: confident teachers weigh more, and a second loss term uses those that disagree with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedfuse import bounds
from fedfuse.fusion.labelling import SoftLabels
from fedfuse.fusion.table import TableTarget
from fedfuse.fusion.target import Diversity, RunningTarget, TargetValue, as_stack, entropy
from fedfuse.types import FedfuseError


class Consensus(NamedTuple):
    """The joint prediction of M teachers on N inputs."""

    consensus: Tensor  # (N, C) the variance-weighted sum of their probabilities
    labels: Tensor  # (N,) its largest class
    diversity: Tensor  # (N, C) the same over the teachers that predict another class, normalised; 0 without any
    mass: Tensor  # (N,) their share of the weight


@dataclass(frozen=True)
class VarianceWeighted:
    """Weight teachers by the variance of their C probabilities, for each input (Fed-ET, Equations 2 to 8).

    A confident teacher has a high variance, one with equal probabilities has none. The weights of those that disagree
    (Equation 8) are normalised over all teachers, so they sum to `mass`: less than 1, unless no teacher predicts the
    class of the consensus. The labels are the consensus; `ConsensusWithDiversity` also uses the diversity.
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        bounds.positive(self, temperature=self.temperature)

    def __call__(self, logits: Tensor, weights: Tensor | None = None) -> Consensus:
        """Return the consensus of logits (M, N, C). Each teacher's variance is multiplied by its weight (M,), or 1."""
        logits, shares = as_stack(logits, weights)
        probs = torch.softmax(logits.double() / self.temperature, 2)
        confidence = shares.double()[:, None] * probs.var(2, unbiased=False)  # (M, N)
        total = confidence.sum(0)
        # Where all variances are 0, use the weights alone.
        fallback = (shares / shares.sum()).double()[:, None]
        alpha = torch.where(total > 0, confidence / total.clamp(min=torch.finfo(total.dtype).tiny), fallback)
        consensus = torch.einsum("mn,mnc->nc", alpha, probs)
        labels = consensus.argmax(1)
        dissent = alpha * (probs.argmax(2) != labels)
        mass = dissent.sum(0)
        diversity = torch.einsum("mn,mnc->nc", dissent, probs)
        diversity /= diversity.sum(1, keepdim=True).clamp(min=torch.finfo(mass.dtype).tiny)
        return Consensus(consensus.float(), labels, diversity.float(), mass.float())

    def start(self, rows: int, classes: int) -> RunningTarget:
        return _RunningConsensus(self, rows, classes)


class _RunningConsensus(TableTarget):
    """Keeps the table, because which teachers disagree is known only once all are added."""

    def __init__(self, target: VarianceWeighted, rows: int, classes: int) -> None:
        super().__init__(lambda logits, weights: target(logits, weights).consensus, rows, classes)
        self._target = target

    def value(self) -> TargetValue:
        consensus, _, diversity, mass = (torch.cat(parts) for parts in zip(*self.each(self._target), strict=True))
        return TargetValue(consensus, entropy(consensus), Diversity(diversity, mass))


@dataclass(frozen=True)
class ConsensusWithDiversity:
    """Fed-ET's loss (Equation 10): cross entropy with the consensus's class, plus lam KL(diversity || student).

    Equation 9 takes the KL of an s_div that does not sum to 1. With `weight` "mass" the term is the KL of the
    normalised distribution, times its mass: it has the equation's gradient, and is exactly 0 where all teachers agree.
    With "plain" every input on which some teacher disagrees counts in full.
    """

    lam: float = 0.05
    weight: Literal["mass", "plain"] = "mass"

    def __post_init__(self) -> None:
        bounds.not_negative(self, "0 is the consensus alone", lam=self.lam)

    def __call__(self, labels: SoftLabels) -> SoftLabels:
        if labels.diversity is None:
            raise FedfuseError("ConsensusWithDiversity needs the labels' diversity: use the target VarianceWeighted()")
        diversity, mass = labels.diversity
        weight = self.lam * (mass if self.weight == "mass" else (mass > 0).float())
        hard = F.one_hot(labels.probs.argmax(1), labels.probs.shape[1])
        # The loss is linear in the labels, so both terms are one cross entropy with labels that sum to 1 + weight.
        both = hard + weight[:, None] * diversity
        return replace(labels, probs=both, floor=weight * entropy(diversity), diversity=None)
