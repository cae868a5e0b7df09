"""MobileNetV2 (Sandler et al. 2018) and ShuffleNetV2 (Ma et al. 2018) for small images.

For 32x32 images the first strides become 1 (MobileNetV2's stem and second stage; ShuffleNetV2's stem, without its
max pool), so three of five halvings remain, as is usual on CIFAR. The parameters are those of the ImageNet nets.
Neither net has dropout before its head.
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn

from fedfuse.models.classifier import Classifier, Shape, classify
from fedfuse.models.layers import LINEAR, RECTIFIED, conv, halving, pooled, strided
from fedfuse.models.norms import Norm

# (expansion, channels, blocks, halves the map): Sandler et al.'s Table 2.
_MOBILE = (
    (1, 16, 1, False),
    (6, 24, 2, False),  # True on ImageNet
    (6, 32, 3, True),
    (6, 64, 4, True),
    (6, 96, 3, False),
    (6, 160, 3, True),
    (6, 320, 1, False),
)
_MOBILE_RESIDUALS = sum(blocks - 1 for _, _, blocks, _ in _MOBILE)

# (channels, units after the one that halves the map): Ma et al.'s Table 5 at 1x.
_SHUFFLE = ((116, 3), (232, 7), (464, 3))


class Residual(nn.Module):
    """x + branch(x)."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:  # (B, C, H, W) -> the same
        out: Tensor = x + self.branch(x)
        return out


class Unit(nn.Module):
    """ShuffleNetV2's unit: half of the channels skip the branch, half go through it, then the halves interleave."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:  # (B, C, H, W) -> the same
        left, right = x.chunk(2, dim=1)
        return interleave(left, self.branch(right))


class Down(nn.Module):
    """ShuffleNetV2's unit that halves the map: all channels go through both branches, each gives half of the result."""

    def __init__(self, left: nn.Module, right: nn.Module) -> None:
        super().__init__()
        self.left = left
        self.right = right

    def forward(self, x: Tensor) -> Tensor:  # (B, C, H, W) -> (B, C', H', W')
        return interleave(self.left(x), self.right(x))


def interleave(left: Tensor, right: Tensor) -> Tensor:
    """Channels (B, C, H, W) x 2 -> (B, 2C, H, W) in the order l0 r0 l1 r1: concatenation and shuffle in one copy."""
    return torch.stack((left, right), dim=2).flatten(1, 2)


def mobilenetv2(norm: Norm, classes: int, shape: Shape) -> Classifier:
    """17 inverted residuals between a 3x3 stem of 32 channels and a 1x1 convolution of 1280."""
    channels, side = 32, min(shape[1:])
    layers: list[nn.Module] = [conv(shape[0], channels, 3, norm), nn.ReLU6(inplace=True)]
    for expansion, out, blocks, halves in _MOBILE:
        for block in range(blocks):
            stride = halving(side) if halves and block == 0 else 1
            layers.append(_inverted(channels, out, expansion, stride, norm, residual=block > 0))
            channels, side = out, strided(side, stride)
    last = conv(channels, 1280, 1, norm, gain=LINEAR), nn.ReLU6(inplace=True)
    return classify(nn.Sequential(*layers, *last, pooled()), 1280, classes)


def shufflenetv2(norm: Norm, classes: int, shape: Shape) -> Classifier:
    """16 units between a 3x3 stem of 24 channels and a 1x1 convolution of 1024."""
    channels, side = 24, min(shape[1:])
    layers: list[nn.Module] = [conv(shape[0], channels, 3, norm), nn.ReLU(inplace=True)]
    for out, units in _SHUFFLE:
        stride = halving(side)
        layers.append(_down(channels, out, stride, norm))
        layers += [Unit(_branch(out // 2, out // 2, 1, norm)) for _ in range(units)]
        channels, side = out, strided(side, stride)
    last = conv(channels, 1024, 1, norm), nn.ReLU(inplace=True)
    return classify(nn.Sequential(*layers, *last, pooled()), 1024, classes)


def _inverted(channels: int, out: int, expansion: int, stride: int, norm: Norm, *, residual: bool) -> nn.Module:
    """Expand (1x1), depthwise (3x3), project (1x1, not rectified)."""
    hidden = channels * expansion
    expand = [conv(channels, hidden, 1, norm, gain=LINEAR), nn.ReLU6(inplace=True)] if expansion > 1 else []
    # Without a norm, branches start so small that their sum is as large as the identity path.
    gain = RECTIFIED / sqrt(_MOBILE_RESIDUALS) if residual and norm == "none" else RECTIFIED
    depthwise = conv(hidden, hidden, 3, norm, stride=stride, groups=hidden)
    branch = nn.Sequential(*expand, depthwise, nn.ReLU6(inplace=True), conv(hidden, out, 1, norm, gain=gain))
    return Residual(branch) if residual else branch


def _branch(channels: int, out: int, stride: int, norm: Norm) -> nn.Sequential:
    """1x1, depthwise 3x3 (not rectified), 1x1."""
    return nn.Sequential(
        conv(channels, out, 1, norm),
        nn.ReLU(inplace=True),
        conv(out, out, 3, norm, stride=stride, groups=out),
        conv(out, out, 1, norm, gain=LINEAR),
        nn.ReLU(inplace=True),
    )


def _down(channels: int, out: int, stride: int, norm: Norm) -> Down:
    left = nn.Sequential(
        conv(channels, channels, 3, norm, stride=stride, groups=channels),
        conv(channels, out // 2, 1, norm, gain=LINEAR),
        nn.ReLU(inplace=True),
    )
    return Down(left, _branch(channels, out // 2, stride, norm))
