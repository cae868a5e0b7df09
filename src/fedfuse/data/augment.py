"""Augmentation of whole batches: one gather per batch, no loop over images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from fedfuse.types import FedfuseError


class Augmentation(Protocol):
    """A random change to a normalised batch x (B, C, H, W) that keeps its shape and memory format."""

    def __call__(self, x: Tensor, rng: torch.Generator) -> Tensor: ...


@dataclass(frozen=True)
class PadCrop:
    """Pad each side with `pad` zeros (the mean of normalised data), then crop each image to its own random window."""

    pad: int

    def __call__(self, x: Tensor, rng: torch.Generator) -> Tensor:
        batch, _, height, width = x.shape
        top, left = torch.randint(2 * self.pad + 1, (2, batch), generator=rng).to(
            x.device, non_blocking=True
        )  # (B,) each
        return crop(F.pad(x, (self.pad,) * 4), top, left, height, width)


@dataclass(frozen=True)
class Flip:
    """Mirror each image left to right with probability `p`."""

    p: float = 0.5

    def __call__(self, x: Tensor, rng: torch.Generator) -> Tensor:
        mask = (torch.rand(len(x), generator=rng) < self.p).to(x.device, non_blocking=True)  # (B,)
        return torch.where(mask[:, None, None, None], x.flip(3), x)


@dataclass(frozen=True)
class Compose:
    """Apply `parts` in order. Without parts it is the identity."""

    parts: tuple[Augmentation, ...] = ()

    def __call__(self, x: Tensor, rng: torch.Generator) -> Tensor:
        for part in self.parts:
            x = part(x, rng)
        return x


def crop(padded: Tensor, top: Tensor, left: Tensor, height: int, width: int) -> Tensor:
    """padded (B, C, H', W') -> (B, C, height, width): image b's window starts at (top[b], left[b])."""
    rows = top[:, None] + torch.arange(height, device=padded.device)  # (B, height)
    columns = left[:, None] + torch.arange(width, device=padded.device)  # (B, width)
    # With the channels last, a gathered pixel is one contiguous read, and the result is already channels_last.
    pixels = padded.permute(0, 2, 3, 1)
    image = torch.arange(len(padded), device=padded.device)[:, None, None]
    window = pixels[image, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    return window if padded.is_contiguous(memory_format=torch.channels_last) else window.contiguous()


def augmentation(name: str, shape: tuple[int, ...]) -> Compose:
    """The augmentation called `name` for examples of `shape`: "none", or crop, crop:2 (padding) and flip, joined by +.

    `crop` pads by an eighth of the height, which is the usual 4 for images of 32 pixels.
    """
    if name == "none":
        return Compose()
    if len(shape) != 3:
        raise FedfuseError(f"augmentation {name!r} needs images, but an example has shape {shape}: use 'none'")
    return Compose(tuple(_part(word, name, shape) for word in name.split("+")))


def _part(word: str, name: str, shape: tuple[int, ...]) -> Augmentation:
    kind, _, value = word.strip().partition(":")
    if kind == "flip" and not value:
        return Flip()
    if kind == "crop" and (not value or value.isdigit()):
        return PadCrop(int(value) if value else max(1, shape[1] // 8))
    raise FedfuseError(f"augmentation {name!r}: {word!r} is unknown: use none, or crop, crop:2 and flip, joined by +")
