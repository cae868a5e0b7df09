"""Mean and standard deviation per channel, computed in chunks."""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 4096  # rows: 12 MB of CIFAR images


def channel_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (C,) and standard deviation (C,) of x (N, C, ...): of x / 255 for uint8, of x itself for floats.

    A constant channel gets a standard deviation of 1, so that normalising it gives zeros, not NaN.
    """
    if len(x) == 0:
        return torch.zeros(x.shape[1]), torch.ones(x.shape[1])
    mean, variance = _of_bytes(x) if x.dtype == torch.uint8 else _of_floats(x)
    std = variance.clamp(min=0).sqrt()
    return mean.float(), torch.where(std > 0, std, torch.ones_like(std)).float()


def _of_bytes(x: Tensor) -> tuple[Tensor, Tensor]:
    # A histogram is exact in any order of summation, so the statistics have the same bits on every machine.
    histogram = torch.zeros(x.shape[1], 256, dtype=torch.float64)
    for chunk in torch.split(x, CHUNK):
        for channel in range(x.shape[1]):
            histogram[channel] += torch.bincount(chunk[:, channel].reshape(-1), minlength=256)
    values = torch.arange(256, dtype=torch.float64) / 255
    share = histogram / histogram.sum(1, keepdim=True)
    mean = (share * values).sum(1)
    return mean, (share * (values - mean[:, None]) ** 2).sum(1)


def _of_floats(x: Tensor) -> tuple[Tensor, Tensor]:
    count = x.numel() / x.shape[1]
    mean = sum((_by_channel(c).sum(1) for c in torch.split(x, CHUNK)), torch.zeros(())) / count
    squares = (((_by_channel(c) - mean[:, None]) ** 2).sum(1) for c in torch.split(x, CHUNK))
    return mean, sum(squares, torch.zeros(())) / count


def _by_channel(chunk: Tensor) -> Tensor:
    return chunk.double().movedim(1, 0).flatten(1)
