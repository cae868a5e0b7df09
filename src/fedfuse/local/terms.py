"""Terms of a client's loss. Each is called as term(net, x, y, local) and returns a scalar; the loss is their sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import torch.nn.functional as F
from torch import Tensor, nn

from fedfuse import bounds
from fedfuse.compute.batches import Batch, forward
from fedfuse.context import Nets
from fedfuse.types import Groups, Snapshot

T = TypeVar("T")


@dataclass(frozen=True)
class Local:
    """What a term may use besides the batch: what the client received, and its memory."""

    start: Sequence[Tensor]  # the received parameters, in the order of net.parameters()
    extra: Groups
    memory: Groups
    received: Snapshot | None = None
    nets: Nets | None = None
    _cache: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Call `make` at the first step of the round, and return the same result at all later steps."""
        if name not in self._cache:
            self._cache[name] = make()
        value: T = self._cache[name]
        return value


class Term(Protocol):
    def __call__(self, net: nn.Module, x: Batch, y: Tensor, local: Local) -> Tensor: ...


@dataclass(frozen=True)
class CrossEntropy:
    """The mean cross entropy of the batch."""

    def __call__(self, net: nn.Module, x: Batch, y: Tensor, local: Local) -> Tensor:
        return F.cross_entropy(forward(net, x), y)


@dataclass(frozen=True)
class Proximal:
    """FedProx's mu/2 ||w - w_t||^2, with the norm squared, over the parameters (not the buffers)."""

    mu: float

    def __post_init__(self) -> None:
        bounds.not_negative(self, "0 is FedAvg", mu=self.mu)

    def __call__(self, net: nn.Module, x: Batch, y: Tensor, local: Local) -> Tensor:
        distances = [(p - q).square().sum() for p, q in zip(net.parameters(), local.start, strict=True)]
        return self.mu / 2 * sum(distances[1:], distances[0])
