"""The layers of the nets, with initial weights that preserve the signal's scale with or without a norm."""

from __future__ import annotations

from math import sqrt

from torch import Tensor, nn

from fedfuse.models.norms import Norm, norm2d

RECTIFIED = sqrt(2.0)  # He et al. 2015: a ReLU halves the second moment of its input
LINEAR = 1.0  # for a layer whose input is not rectified


def conv(
    channels: int,
    out: int,
    kernel: int,
    norm: Norm,
    *,
    stride: int = 1,
    padding: int | None = None,
    groups: int = 1,
    gain: float = RECTIFIED,
) -> nn.Sequential:
    """A convolution and its norm, padded to keep the map's size by default. It has a bias only without a norm."""
    same = kernel // 2 if padding is None else padding
    layer = nn.Conv2d(channels, out, kernel, stride, same, groups=groups, bias=norm == "none")
    _scale(layer.weight, layer.bias, gain)
    return nn.Sequential(layer, norm2d(norm, out))


def dense(width: int, out: int) -> nn.Sequential:
    """A hidden fully connected layer and its ReLU."""
    layer = nn.Linear(width, out)
    _scale(layer.weight, layer.bias, RECTIFIED)
    return nn.Sequential(layer, nn.ReLU(inplace=True))


def pooled() -> nn.Sequential:
    """(B, C, H, W) of any size -> (B, C)."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())


def halving(side: int) -> int:
    """The stride that halves a map: 2, or 1 if the map would become 1x1.

    This leaves small images room to convolve, and batch norm several values per channel even for a batch of one.
    """
    return 2 if side > 2 else 1


def strided(side: int, stride: int) -> int:
    """The side of a map after a padded convolution of this stride."""
    return -(-side // stride)


def _scale(weight: Tensor, bias: Tensor | None, gain: float) -> None:
    fan_in = weight[0].numel()  # not fan-out, which overcounts for depthwise convolutions
    nn.init.normal_(weight, std=gain / sqrt(fan_in))
    if bias is not None:
        nn.init.zeros_(bias)
