"""The coordinate-wise median, as an aggregate and as a target: a minority of extreme clients moves it little.

Yin, Chen, Kannan, Bartlett: Byzantine-Robust Distributed Learning. ICML 2018. arXiv:1803.01498.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedfuse import bounds, tree
from fedfuse.context import Context
from fedfuse.fusion.aggregate import Aggregated, RunningAggregate
from fedfuse.fusion.spill import SpillingRows
from fedfuse.fusion.table import TableTarget
from fedfuse.fusion.target import RunningTarget, on_stack
from fedfuse.types import FedfuseError, ServerState, Update, model_of

BLOCK = 1 << 20  # elements that are sorted at once


def median(rows: Tensor) -> Tensor:
    """(K, ...) -> (...): the middle value over K, or the mean of the two in the middle."""
    ordered, half = rows.sort(0).values, len(rows) // 2
    low = ordered[(len(rows) - 1) // 2]
    return low + (ordered[half] - low) / 2  # exact for equal values


@dataclass(frozen=True)
class CoordinateMedian:
    """The median over clients of every parameter and buffer. Clients are not weighted by the examples that they claim.

    It needs all models at once: past a bound they are stored in a temporary file.
    """

    def start(self, server: ServerState, ctx: Context) -> RunningAggregate:
        return _RunningMedian(server)


class _RunningMedian:
    def __init__(self, server: ServerState) -> None:
        self._server = server
        self._models: dict[str, SpillingRows] = {}  # by architecture; each row is a model

    def add(self, update: Update) -> None:
        model = model_of(update, "CoordinateMedian needs models")
        self._models.setdefault(model.arch, SpillingRows(torch.float64)).append(tree.flatten(model)[None])

    def value(self) -> Aggregated:
        models = {
            arch: tree.unflatten(_in_blocks(rows.whole()), self._server.models[arch])
            for arch, rows in self._models.items()
        }
        return Aggregated(models, self._server.memory)


def _in_blocks(rows: Tensor) -> Tensor:
    """(K, P) -> (P,): the median, a block of columns at a time."""
    return torch.cat([median(block) for block in torch.split(rows, max(1, BLOCK // len(rows)), dim=1)])


@dataclass(frozen=True)
class MedianLogits:
    """softmax(median over the teachers of each logit / temperature). All teachers have the same weight."""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        bounds.positive(self, temperature=self.temperature)

    def start(self, rows: int, classes: int) -> RunningTarget:
        return TableTarget(self._labels, rows, classes)

    def _labels(self, logits: Tensor, weights: Tensor) -> Tensor:  # (M, n, C), (M,) -> (n, C)
        if len(set(weights.tolist())) > 1:
            raise FedfuseError("MedianLogits weights all teachers equally: leave the weights out, or use MeanLogits")
        return torch.softmax(median(logits) / self.temperature, 1)

    def __call__(self, logits: Tensor, weights: Tensor | None = None) -> Tensor:
        return on_stack(self, logits, weights)
