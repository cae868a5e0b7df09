"""Your own model: a function from the number of classes and the shape of one input to a module.

In the project's folder: `fedfuse run examples/own_model.toml`.
"""

import math

from torch import nn


def bottleneck(classes: int, shape: tuple[int, ...]) -> nn.Module:
    """A perceptron with a narrow middle and layer norm: (B, *shape) -> (B, classes)."""
    inputs = math.prod(shape)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, 64),
        nn.LayerNorm(64),
        nn.ReLU(),
        nn.Linear(64, 16),
        nn.ReLU(),
        nn.Linear(16, classes),
    )
