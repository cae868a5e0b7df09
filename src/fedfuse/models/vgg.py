"""VGG nets (Simonyan & Zisserman 2014) as federated papers use them on small images: two hidden layers of 512.

A pool that would leave a 1x1 map is skipped, except the last; larger images leave a larger map to the first hidden
layer. A norm follows each convolution, none the hidden layers. No dropout, unlike FedMA's VGG-9 (0.05 and 0.1): the
papers' comparisons do not rest on it, and a net without it gives the same gradient twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from fedfuse.models.classifier import Classifier, Shape, classify
from fedfuse.models.layers import conv, dense
from fedfuse.models.norms import Norm

Stages = Sequence[Sequence[int]]  # channels of each convolution, stage by stage: a pool ends each stage

# FedMA's, which FedDF compares on. FedDF's released code has another 9-layer net (8 convolutions, no hidden layer).
VGG9: Stages = ((32, 64), (128, 128), (256, 256))
VGG19: Stages = ((64,) * 2, (128,) * 2, (256,) * 4, (512,) * 4, (512,) * 4)

_HIDDEN = 512


def vgg(stages: Stages, norm: Norm, classes: int, shape: Shape) -> Classifier:
    """The convolutions of `stages`, flattened, then 512 - 512 - classes."""
    channels, height, width = shape
    layers: list[nn.Module] = []
    for number, stage in enumerate(stages, start=1):
        for out in stage:
            layers += [conv(channels, out, 3, norm), nn.ReLU(inplace=True)]
            channels = out
        if min(height, width) >= 4 or number == len(stages):
            layers.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
    hidden = dense(channels * height * width, _HIDDEN), dense(_HIDDEN, _HIDDEN)
    return classify(nn.Sequential(*layers, nn.Flatten(), *hidden), _HIDDEN, classes)
