"""The layers that the nets are made of, with initial weights that keep the signal's size with or without a norm."""

from __future__ import annotations

from math import sqrt

from torch import Tensor, nn

from fedfuse.models.norms import Norm, norm2d

RECTIFIED = sqrt(2.0)  # He et al. 2015: a rectifier halves the second moment of what it passes on
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
    """A convolution and its norm, padded to keep the map's size unless told. A bias only where no norm has one."""
    same = kernel // 2 if padding is None else padding
    layer = nn.Conv2d(channels, out, kernel, stride, same, groups=groups, bias=norm == "none")
    _scale(layer.weight, layer.bias, gain)
    return nn.Sequential(layer, norm2d(norm, out))


def dense(width: int, out: int) -> nn.Sequential:
    """A hidden fully connected layer and its rectifier."""
    layer = nn.Linear(width, out)
    _scale(layer.weight, layer.bias, RECTIFIED)
    return nn.Sequential(layer, nn.ReLU(inplace=True))


def pooled() -> nn.Sequential:
    """(B, C, H, W) of any size -> (B, C)."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())


def halving(side: int) -> int:
    """The stride where a net halves its map: 2, or 1 where the map would become 1x1.

    So small images keep some space to convolve, and batch norm has several values per channel even for a batch of one.
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
