"""The form of all nets in the zoo: a trunk that computes features and a head that classifies them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from fedfuse.types import FedfuseError

Shape = tuple[int, ...]  # of one input: (C, H, W) for images, (D,) for flat inputs
Layer = Callable[[Any], Tensor]


class Classifier(nn.Module):
    """logits = head(trunk(x)). `width` is stored because a head need not be one linear layer (Fed-ET's is an MLP)."""

    def __init__(self, trunk: nn.Module, head: nn.Module, width: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = head
        self.width = width

    def features(self, x: Tensor) -> Tensor:
        """(B, *shape) -> (B, width): the features that MOON contrasts and that a shared head classifies."""
        features: Tensor = self.trunk(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """(B, *shape) -> (B, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits


def classify(trunk: nn.Module, width: int, classes: int) -> Classifier:
    """`trunk` with the usual head: one linear layer, with PyTorch's initialisation."""
    return Classifier(trunk, nn.Linear(width, classes), width)


def trunk_and_head(net: nn.Module) -> tuple[Layer, Layer]:
    """The part of a net that computes features, and the part that classifies them.

    If the net is a Sequential that ends in a linear layer, that layer is the head.
    """
    if isinstance(net, Classifier):
        return net.features, net.head
    if isinstance(net, nn.Sequential) and len(net) > 1 and isinstance(net[-1], nn.Linear):
        return net[:-1], net[-1]
    raise FedfuseError(
        f"the features of a {type(net).__name__} are unknown: use a fedfuse.models.Classifier, or a Sequential that "
        "ends in a linear layer"
    )
