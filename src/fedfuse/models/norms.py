"""The norm of a net, set by a suffix of its name: `resnet8:gn`."""

from __future__ import annotations

from typing import Literal

from torch import nn

Norm = Literal["bn", "gn", "none"]
NORMS: tuple[Norm, ...] = ("bn", "gn", "none")

_MOST_GROUPS = 32  # Wu & He's default for wide layers
_LEAST_CHANNELS = 8  # per group: 16 channels get the 2 groups of Hsieh et al.; one channel each would be instance norm


def groups(channels: int) -> int:
    """The largest group count that divides `channels`, is at most 32 and leaves 8 channels or more in a group."""
    most = max(1, min(_MOST_GROUPS, channels // _LEAST_CHANNELS))
    return next(count for count in range(most, 0, -1) if channels % count == 0)


def norm2d(norm: Norm, channels: int) -> nn.Module:
    """The norm for maps (B, channels, H, W)."""
    return nn.BatchNorm2d(channels) if norm == "bn" else _batchless(norm, channels)


def norm1d(norm: Norm, channels: int) -> nn.Module:
    """The norm for features (B, channels)."""
    return nn.BatchNorm1d(channels) if norm == "bn" else _batchless(norm, channels)


def _batchless(norm: Norm, channels: int) -> nn.Module:
    return nn.GroupNorm(groups(channels), channels) if norm == "gn" else nn.Identity()
