"""Entropy reduction aggregation, DS-FL's target. Itahara, Nishio, Koda, Morikura, Yamamoto. 2020. arXiv:2008.06180."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedfuse import bounds
from fedfuse.fusion.target import MeanProbs, RunningTarget, TargetValue, on_stack


@dataclass(frozen=True)
class EntropyReduced:
    """softmax(mean of the teachers' probabilities / reduction): DS-FL's T is `reduction`.

    Heterogeneous clients have a flat mean; this sharpens it. Only the labels are sharpened, so T is not called
    `temperature`, by which the student's logits would be divided too. It is a softmax of probabilities, so no two
    labels of a row differ by more than a factor of exp(1 / T), and a nearly flat row of more than 1 / T classes
    becomes even flatter: for many classes choose a smaller T.
    """

    reduction: float = 0.1
    temperature: float = 1.0

    def __post_init__(self) -> None:
        bounds.positive(self, reduction=self.reduction, temperature=self.temperature)

    def start(self, rows: int, classes: int) -> RunningTarget:
        return _RunningReduction(MeanProbs(temperature=self.temperature).start(rows, classes), self.reduction)

    def __call__(self, logits: Tensor, weights: Tensor | None = None) -> Tensor:
        return on_stack(self, logits, weights)


class _RunningReduction:
    def __init__(self, mean: RunningTarget, reduction: float) -> None:
        self._mean, self._reduction = mean, reduction

    def add(self, logits: Tensor, weight: float = 1.0) -> None:
        self._mean.add(logits, weight)

    def value(self) -> TargetValue:
        return TargetValue.of(torch.softmax(self._mean.value().probs / self._reduction, 1))
