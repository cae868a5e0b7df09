"""Small nets: FedBE's ConvNet, Fed-ET's CNN, LeNet and perceptrons.

Their convolutions are unpadded, as published. If a map is too small for that (`Conv.least`), its convolution pads to
keep the map's size, so images from 8x8 up work. A norm follows each convolution, but not the hidden layers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from torch import nn

from fedfuse.models.classifier import Classifier, Shape, classify
from fedfuse.models.layers import conv, dense
from fedfuse.models.norms import Norm, norm1d


@dataclass(frozen=True)
class Conv:
    """One convolution, its ReLU and optionally a max pool; unpadded on maps with sides of at least `least`."""

    channels: int
    kernel: int
    least: int
    pool: bool = True


# FedBE's code: 3x3, then 1024 - 64 - classes on CIFAR. `least` is the side that this convolution and the
# later ones need to be unpadded.
_CONVNET = (Conv(32, 3, 18), Conv(64, 3, 8), Conv(64, 3, 3, pool=False))

# The layers that FedBE's Figure 2 adds, as in its code: padded, after the third convolution.
_ADDED = Conv(64, 3, sys.maxsize, pool=False)
DEPTHS = range(3, 65)  # of a ConvNet

# Fed-ET's appendix C gives 2 convolutions with max pooling and the hidden layers, but neither channels nor
# kernels: these give 0.39 M parameters, where its Table 6 has 0.4 M.
_CNN = (Conv(32, 5, 16), Conv(96, 5, 6))

# LeNet-5's maps, with ReLU and max pools. Below 32x32 the first convolution pads, as LeCun et al. padded 28x28 digits.
_LENET = (Conv(6, 5, 32), Conv(16, 5, 14))


def convnet(norm: Norm, classes: int, shape: Shape, depth: int = 3) -> Classifier:
    """3 convolutions, or `depth`, and 2 fully connected layers (FedBE)."""
    return _convolutional((*_CONVNET, *[_ADDED] * (depth - len(_CONVNET))), (64,), norm, classes, shape)


def cnn(norm: Norm, classes: int, shape: Shape) -> Classifier:
    """2 convolutions and 4 hidden layers (Fed-ET)."""
    return _convolutional(_CNN, (120, 100, 84, 50), norm, classes, shape)


def lenet(norm: Norm, classes: int, shape: Shape) -> Classifier:
    """LeNet-5 (LeCun et al. 1998)."""
    return _convolutional(_LENET, (120, 84), norm, classes, shape)


def mlp(hidden: Sequence[int], norm: Norm, classes: int, shape: Shape) -> Classifier:
    """A perceptron with these hidden widths on the flattened input, with its norm before each ReLU."""
    layers: list[nn.Module] = [nn.Flatten()]
    for width, out in pairwise((prod(shape), *hidden)):
        linear, relu = dense(width, out)
        layers += [linear, norm1d(norm, out), relu]
    return classify(nn.Sequential(*layers), hidden[-1], classes)


def _convolutional(convs: Sequence[Conv], hidden: Sequence[int], norm: Norm, classes: int, shape: Shape) -> Classifier:
    channels, height, width = shape
    layers: list[nn.Module] = []
    for step in convs:
        padding = 0 if min(height, width) >= step.least else step.kernel // 2
        layers += [conv(channels, step.channels, step.kernel, norm, padding=padding), nn.ReLU(inplace=True)]
        shrink = step.kernel - 1 - 2 * padding
        channels, height, width = step.channels, height - shrink, width - shrink
        if step.pool:
            layers.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
    layers.append(nn.Flatten())
    layers += [dense(before, after) for before, after in pairwise((channels * height * width, *hidden))]
    return classify(nn.Sequential(*layers), hidden[-1], classes)
