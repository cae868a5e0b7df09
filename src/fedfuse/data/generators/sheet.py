"""Draw a sheet of samples, to see what a generator has learned."""

from __future__ import annotations

import io
from math import isqrt
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from fedfuse.files import write_whole
from fedfuse.types import FedfuseError

SAMPLES = 100
SIDE = 800  # of the picture, in pixels, approximately
GREY = 96


def check_picture(path: Path, channels: int) -> None:
    """Raise a FedfuseError unless a sheet of such images can be written to `path`. Call it before the work."""
    _pillow()
    if path.suffix != ".png":
        raise FedfuseError(f"{path} ends in {path.suffix!r}: a sheet of samples is a .png")
    if channels not in (1, 3):
        raise FedfuseError(f"{path}: images of {channels} channels cannot be drawn: use 1 (grey) or 3 (colour)")


def draw_sheet(images: Tensor, path: Path) -> None:
    """Write images (N, C, H, W) uint8 as a square sheet to `path`, each pixel as a block."""
    channels, height, width = images.shape[1:]
    check_picture(path, channels)
    across = isqrt(len(images))
    block = max(1, SIDE // (across * (max(height, width) + 1)))
    large = images[: across**2].repeat_interleave(block, 2).repeat_interleave(block, 3)
    tiles = F.pad(large, (block, 0, block, 0), value=GREY)
    grid = tiles.view(across, across, *tiles.shape[1:]).permute(2, 0, 3, 1, 4)  # (C, down, H, across, W)
    sheet = F.pad(grid.flatten(3, 4).flatten(1, 2), (0, block, 0, block), value=GREY)
    pixels = sheet[0] if channels == 1 else sheet.movedim(0, 2)
    content = io.BytesIO()
    _pillow().fromarray(pixels.contiguous().numpy()).save(content, "PNG")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content.getvalue())


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise FedfuseError('a sheet of samples needs Pillow: pip install "fedfuse[data]"') from error
    return Image
