"""The pool's true labels in place of the teachers': the upper bound of FedBE's Table 2, "ground-truth labels"."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fedfuse.context import Context
from fedfuse.fusion.labelling import SoftLabels
from fedfuse.fusion.target import RunningTarget
from fedfuse.types import FedfuseError


@dataclass(frozen=True)
class GroundTruth:
    """The true labels of the pool, where it is a split of the training data. No model teaches.

    No server has these labels: the result is a bound on what better teachers could reach, for simulations only.
    """

    @property
    def temperature(self) -> float:
        return 1.0

    def check(self, ctx: Context) -> None:
        _truth(ctx)

    def labels(self, rows: Tensor, origin: Tensor, ctx: Context) -> SoftLabels:
        """Return the labels of `rows` (n,), which are copies of the rows `origin` (n,) of the run's pool."""
        probs = F.one_hot(_truth(ctx)[origin], ctx.nets.classes).to(torch.float32)
        return SoftLabels(rows, probs, torch.zeros(len(rows)))

    def start(self, rows: int, classes: int) -> RunningTarget:
        raise FedfuseError(
            "the target ground-truth takes no teachers: it labels the pool of a distillation at the server, as in "
            "feddf, fedbe and v-distillation; choose another target here"
        )


def _truth(ctx: Context) -> Tensor:
    """Return the true labels (N,) of the pool."""
    if ctx.data.pool_truth is None:
        raise FedfuseError(
            "the target ground-truth needs the true labels of the pool, and only a part of the training data has them: "
            'set data.pool.kind = "split", or choose another target'
        )
    return ctx.data.pool_truth
