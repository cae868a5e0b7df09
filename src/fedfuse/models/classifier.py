"""What every net of the zoo is: a trunk that gives features and a head that classifies them."""

from __future__ import annotations

from torch import Tensor, nn

Shape = tuple[int, ...]  # of one input: (C, H, W) for images, (D,) for flat ones


class Classifier(nn.Module):
    """logits = head(trunk(x)). `width` is stored because a head need not be one linear layer (Fed-ET's is an MLP)."""

    def __init__(self, trunk: nn.Module, head: nn.Module, width: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = head
        self.width = width

    def features(self, x: Tensor) -> Tensor:
        """(B, *shape) -> (B, width): what MOON contrasts, and what a shared head reads."""
        features: Tensor = self.trunk(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """(B, *shape) -> (B, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits


def classify(trunk: nn.Module, width: int, classes: int) -> Classifier:
    """`trunk` with the usual head: one linear layer, with PyTorch's initial weights."""
    return Classifier(trunk, nn.Linear(width, classes), width)
