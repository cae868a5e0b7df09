"""Terms of a client's loss. Each is called as term(net, x, y, local) and gives a scalar; the loss is their sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch.nn.functional as F
from torch import Tensor, nn

from fedfuse.types import FedfuseError, Groups


@dataclass(frozen=True)
class Local:
    """What a term may look at besides the batch: where the round began, what was sent, what the client kept."""

    start: Sequence[Tensor]  # the received parameters, in the order of net.parameters()
    extra: Groups
    memory: Groups


class Term(Protocol):
    def __call__(self, net: nn.Module, x: Tensor, y: Tensor, local: Local) -> Tensor: ...


@dataclass(frozen=True)
class CrossEntropy:
    """The mean cross entropy of the batch."""

    def __call__(self, net: nn.Module, x: Tensor, y: Tensor, local: Local) -> Tensor:
        return F.cross_entropy(net(x), y)


@dataclass(frozen=True)
class Proximal:
    """FedProx's mu/2 ||w - w_t||^2, squared, over the parameters (not the buffers)."""

    mu: float

    def __post_init__(self) -> None:
        if self.mu < 0:
            raise FedfuseError(f"Proximal(mu={self.mu}): mu must not be negative; 0 is FedAvg")

    def __call__(self, net: nn.Module, x: Tensor, y: Tensor, local: Local) -> Tensor:
        distances = [(p - q).square().sum() for p, q in zip(net.parameters(), local.start, strict=True)]
        return self.mu / 2 * sum(distances[1:], distances[0])
