"""Residual nets (He et al. 2016), both families with a 3x3 stem for small images.

Without a norm, each block's last convolution starts smaller by 1/sqrt(blocks), so that the sum of all branches
starts as large as the identity path. (Starting it at zero would leave the rest of the branch without a gradient.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt

import torch.nn.functional as F
from torch import Tensor, nn

from fedfuse.models.classifier import Classifier, Shape, classify
from fedfuse.models.layers import LINEAR, RECTIFIED, conv, halving, pooled, strided
from fedfuse.models.norms import Norm

Shortcut = Callable[[int, int, int, Norm], nn.Module]  # (channels, out, stride, norm)


class Block(nn.Module):
    """relu(branch(x) + shortcut(x)), where the branch is two 3x3 convolutions."""

    def __init__(self, first: nn.Module, second: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.first = first
        self.second = second
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:  # (B, channels, H, W) -> (B, out, H', W')
        out: Tensor = self.second(F.relu(self.first(x), inplace=True))
        out += self.shortcut(x)
        return F.relu(out, inplace=True)


class Subsample(nn.Module):
    """He et al.'s option A: every stride-th pixel, and zeros for the channels that the wider layer adds."""

    def __init__(self, stride: int, extra: int) -> None:
        super().__init__()
        self.stride = stride
        self.extra = extra

    def forward(self, x: Tensor) -> Tensor:  # (B, C, H, W) -> (B, C + extra, H', W')
        before = self.extra // 2
        # Pooling over single pixels: the gradient of a slice is in the default memory format, which makes the layers
        # before it 10 times slower where all else is channels_last.
        kept = F.avg_pool2d(x, kernel_size=1, stride=self.stride)
        return F.pad(kept, (0, 0, 0, 0, before, self.extra - before))


def identity(channels: int, out: int, stride: int, norm: Norm) -> nn.Module:
    """Option A: a shortcut without parameters."""
    return nn.Identity() if (channels, stride) == (out, 1) else Subsample(stride, out - channels)


def projection(channels: int, out: int, stride: int, norm: Norm) -> nn.Module:
    """Option B: a 1x1 convolution where the shape changes."""
    if (channels, stride) == (out, 1):
        return nn.Identity()
    return conv(channels, out, 1, norm, stride=stride, gain=LINEAR)


def cifar(depth: int, norm: Norm, classes: int, shape: Shape) -> Classifier:
    """ResNet-(6n+2): 16, 32 and 64 channels, n blocks each, with option A as in He et al.'s section 4.2.

    FedBE's code does the same. FedDF's uses option B: 2,752 parameters more (78,042 for its ResNet-8, not 75,290).
    """
    return classify(_trunk((16, 32, 64), (depth - 2) // 6, identity, norm, shape), 64, classes)


def wide(blocks: int, norm: Norm, classes: int, shape: Shape) -> Classifier:
    """ResNet-(8n+2): 64 to 512 channels, n blocks each, option B; a 3x3 stem replaces ImageNet's stem and pool."""
    return classify(_trunk((64, 128, 256, 512), blocks, projection, norm, shape), 512, classes)


def _trunk(widths: Sequence[int], blocks: int, shortcut: Shortcut, norm: Norm, shape: Shape) -> nn.Sequential:
    channels, side = widths[0], min(shape[1:])
    gain = RECTIFIED / sqrt(len(widths) * blocks) if norm == "none" else RECTIFIED
    layers: list[nn.Module] = [conv(shape[0], channels, 3, norm), nn.ReLU(inplace=True)]
    for out in widths:
        for _ in range(blocks):
            stride = halving(side) if out != channels else 1
            first, second = conv(channels, out, 3, norm, stride=stride), conv(out, out, 3, norm, gain=gain)
            layers.append(Block(first, second, shortcut(channels, out, stride, norm)))
            channels, side = out, strided(side, stride)
    return nn.Sequential(*layers, pooled())
