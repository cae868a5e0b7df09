"""The norm of a net, set by a suffix of its name: `resnet8:gn`, or `resnet8:gn4` for 4 groups in every layer."""

from __future__ import annotations

import re

from torch import nn

from fedfuse.types import FedfuseError

Norm = str  # one of NORMS, or "gn" and a number of groups
NORMS: tuple[Norm, ...] = ("bn", "gn", "none")

_MOST_GROUPS = 32  # Wu & He's default for wide layers
_LEAST_CHANNELS = 8  # per group: 16 channels get the 2 groups of Hsieh et al.; one channel each would be instance norm


def is_norm(text: str) -> bool:
    return text in NORMS or re.fullmatch(r"gn[1-9][0-9]{0,5}", text) is not None


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
    return nn.Identity() if norm == "none" else nn.GroupNorm(_groups_of(norm, channels), channels)


def _groups_of(norm: Norm, channels: int) -> int:
    """The number of groups in a layer: as the norm says, or by `groups`."""
    if norm == "gn":
        return groups(channels)
    count = int(norm.removeprefix("gn"))
    if channels % count:
        raise FedfuseError(
            f"{norm}: a layer of {channels} channels cannot be divided into {count} equal groups: choose a divisor of "
            "every layer's channels, or gn, which chooses one for each layer"
        )
    return count
