"""The form of all nets in the zoo: a trunk that computes features and a head that classifies them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fedfuse.compute.batches import Batch, as_called, call
from fedfuse.types import FedfuseError

# Of one input: (C, H, W) for images, (D,) for flat inputs, (longest length, size of the vocabulary) for texts.
Shape = tuple[int, ...]
Layer = Callable[[Any], Tensor]


class Classifier(nn.Module):
    """logits = head(trunk(x)). `width` is stored because a head need not be one linear layer (Fed-ET's is an MLP)."""

    def __init__(self, trunk: nn.Module, head: nn.Module, width: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = head
        self.width = width

    def features(self, batch: Batch) -> Tensor:
        """B inputs -> (B, width): the features that MOON contrasts and that a shared head classifies."""
        features: Tensor = call(self.trunk, batch)
        return features

    def forward(self, x: Tensor | None = None, **inputs: Tensor) -> Tensor:
        """B inputs, as one tensor or by keywords -> (B, classes)."""
        logits: Tensor = self.head(self.features(as_called(x, inputs)))
        return logits


class Trunk(nn.Sequential):
    """Layers in sequence. The first takes the inputs, as one tensor or by keywords."""

    def forward(self, x: Tensor | None = None, **inputs: Tensor) -> Tensor:  # type: ignore[override]
        first, *rest = self
        features: Tensor = call(first, as_called(x, inputs))
        for layer in rest:
            features = layer(features)
        return features


class TextTrunk(nn.Module):
    """A module that takes texts by keywords, as transformers does: token ids and mask (B, L) -> features (B, width)."""


def reads_texts(module: nn.Module) -> bool:
    """Whether a net, or the first part of one, takes texts."""
    return any(isinstance(part, TextTrunk) for part in module.modules())


def zeros(module: nn.Module, shape: Shape, rows: int) -> Batch:
    """Return inputs of this shape to try a module on: zeros, or texts of one word."""
    first = next(module.parameters(), None)
    device = None if first is None else first.device
    if not reads_texts(module):
        return torch.zeros(rows, *shape, device=device)
    # Without a mask: transformers looks into it, which tensors without memory do not allow.
    return {"input_ids": torch.zeros(rows, shape[0], dtype=torch.int64, device=device)}


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
        return partial(call, net[:-1]), net[-1]
    raise FedfuseError(
        f"the features of a {type(net).__name__} are unknown: use a fedfuse.models.Classifier, or a Sequential that "
        "ends in a linear layer, or, for texts, name the pooling of an encoder, as in hf:<id or folder>:pool=mean"
    )
