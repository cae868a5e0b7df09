"""VGG nets (Simonyan & Zisserman 2014) as the federated papers use them on small images: two hidden layers of 512.

A pool that would leave a 1x1 map is skipped, except the last. Larger images give the first hidden layer a larger map. A
norm follows each convolution, but not the hidden layers. There is no dropout, unlike in FedMA's VGG-9 (0.05 and 0.1):
the papers' comparisons do not depend on it, and without it the same input gives the same gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from fedfuse.models.classifier import Classifier, Shape, classify
from fedfuse.models.layers import conv, dense
from fedfuse.models.norms import Norm

Stages = Sequence[Sequence[int]]  # channels of each convolution, by stage; each stage ends with a pool

# FedMA's net, on which FedDF compares. FedDF's released code has another 9-layer net (8 convolutions, no hidden layer).
VGG9: Stages = ((32, 64), (128, 128), (256, 256))
VGG19: Stages = ((64,) * 2, (128,) * 2, (256,) * 4, (512,) * 4, (512,) * 4)

HIDDEN = (512, 512)


def widened(stages: Stages, widths: Sequence[int]) -> tuple[Stages, Sequence[int]]:
    """The stages and hidden layers of a net with other widths, one for each convolution and hidden layer."""
    rest = iter(widths)
    return [[next(rest) for _ in stage] for stage in stages], list(rest)


def vgg(stages: Stages, norm: Norm, classes: int, shape: Shape, hidden: Sequence[int] = HIDDEN) -> Classifier:
    """The convolutions of `stages`, flattened, then hidden layers (512 - 512) and classes."""
    channels, height, width = shape
    layers: list[nn.Module] = []
    for number, stage in enumerate(stages, start=1):
        for out in stage:
            layers += [conv(channels, out, 3, norm), nn.ReLU(inplace=True)]
            channels = out
        if min(height, width) >= 4 or number == len(stages):
            layers.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
    layers += [nn.Flatten(), *(dense(a, b) for a, b in pairwise((channels * height * width, *hidden)))]
    return classify(nn.Sequential(*layers), hidden[-1], classes)
