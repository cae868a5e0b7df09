"""Terms of a client's loss. Each is called as term(net, x, y, local) and gives a scalar; the loss is their sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfuse.context import Nets
from fedfuse.models.classifier import Classifier
from fedfuse.types import FedfuseError, Groups, Snapshot

T = TypeVar("T")


@dataclass(frozen=True)
class Local:
    """What a term may look at besides the batch: where the round began, what was sent, what the client kept."""

    start: Sequence[Tensor]  # the received parameters, in the order of net.parameters()
    extra: Groups
    memory: Groups
    received: Snapshot | None = None
    nets: Nets | None = None
    _made: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What `make` gives, made at the round's first step and kept for the others."""
        if name not in self._made:
            self._made[name] = make()
        made: T = self._made[name]
        return made


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


CONTROL = "control"  # the group of a control variate: in a task c, in a client's memory c_i, in an update its change


@dataclass(frozen=True)
class ControlVariate:
    """SCAFFOLD's correction <c - c_i, w>, whose gradient is c - c_i: added to a client's own, it gives all clients'."""

    def __call__(self, net: nn.Module, x: Tensor, y: Tensor, local: Local) -> Tensor:
        corrections = local.once(CONTROL, lambda: _corrections(net, local))
        products = [(c * p).sum() for c, p in zip(corrections, net.parameters(), strict=True)]
        return sum(products[1:], products[0])


def _corrections(net: nn.Module, local: Local) -> list[Tensor]:
    """c - c_i by parameter, in the parameters' own layout. A client's first c_i is 0."""
    ours, own = local.extra[CONTROL], local.memory.get(CONTROL)
    return [
        torch.empty_like(p, requires_grad=False).copy_(ours[name] if own is None else ours[name] - own[name])
        for name, p in net.named_parameters()
    ]


PREVIOUS = "previous/params", "previous/buffers"  # in a client's memory: the model of its last round


@dataclass(frozen=True)
class ModelContrast:
    """Cross entropy and mu times MOON's contrast: features near the received model's, far from the previous one's.

    With z the features of the batch, the contrast is the mean of

        -log( exp(cos(z, z_received) / tau) / (exp(cos(z, z_received) / tau) + exp(cos(z, z_previous) / tau)) )

    The two are one term because both need the features, and a second pass through the net would count each batch twice
    in its batch-norm statistics. The frozen nets run as they would predict (eval), as in the released code.
    """

    mu: float
    temperature: float

    def __post_init__(self) -> None:
        if self.mu < 0:
            raise FedfuseError(f"ModelContrast(mu={self.mu}): mu must not be negative; 0 is FedAvg")
        if not self.temperature > 0:
            raise FedfuseError(f"ModelContrast(temperature={self.temperature}): the temperature must be positive")

    def __call__(self, net: nn.Module, x: Tensor, y: Tensor, local: Local) -> Tensor:
        trunk, head = local.once("trunk", lambda: trunk_and_head(net))
        features = trunk(x)  # (B, width)
        loss = F.cross_entropy(head(features), y)
        frozen = local.once("contrast", lambda: _frozen(local))
        if frozen is None:
            return loss + self.mu * math.log(2)  # the received model is the previous one too: no gradient
        with torch.no_grad():
            known = [features_of(x) for features_of in frozen]
        similar = torch.stack([F.cosine_similarity(features, z) for z in known], 1) / self.temperature  # (B, 2)
        return loss + self.mu * F.cross_entropy(similar, torch.zeros(len(x), dtype=torch.long))


Layer = Callable[[Tensor], Tensor]


def trunk_and_head(net: nn.Module) -> tuple[Layer, Layer]:
    """What makes a net's features, and what reads them: of a Sequential that ends in a linear layer, that layer."""
    if isinstance(net, Classifier):
        return net.features, net.head
    if isinstance(net, nn.Sequential) and len(net) > 1 and isinstance(net[-1], nn.Linear):
        return net[:-1], net[-1]
    raise FedfuseError(
        f"a {type(net).__name__} does not say what its features are, which are to be contrasted: use a net that is made"
        " of a trunk and a head, fedfuse.models.Classifier, or a Sequential that ends in a linear layer"
    )


def _frozen(local: Local) -> tuple[Layer, Layer] | None:
    """What makes the features of the received model and of the client's previous one; None in its first round."""
    params, buffers = (local.memory.get(group) for group in PREVIOUS)
    if params is None:
        return None
    assert local.received is not None, "Training says what was received"
    assert local.nets is not None, "Training lends its nets"
    previous = Snapshot(local.received.arch, params, buffers or {})
    received, last = local.nets.load(local.received, "received"), local.nets.load(previous, "previous")
    return trunk_and_head(received.eval())[0], trunk_and_head(last.eval())[0]
