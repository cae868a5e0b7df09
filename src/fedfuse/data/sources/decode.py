"""Decode compressed images into one uint8 array."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfuse.compute.threads import cores
from fedfuse.types import FedfuseError

LARGEST = 4096  # pixels: the side of a resized image
BLOCK = 500  # images per report of progress
WORTH_A_THREAD = 96 * 96  # pixels; for smaller images, passing the GIL around costs more than threads save
BILINEAR, BOX = 2, 4  # PIL's numbers of its filters; the box filter is the plain average when an image shrinks
GREY = {"1", "L", "LA", "I;16", "I"}

Encoded = bytes | str  # an image file's content, or its path


class _ColourAfterGreyError(Exception):
    """The first image is grey, but a later one is in colour."""


def sizes_of(images: Sequence[Encoded]) -> list[tuple[int, int]]:
    """The width and height of each image, read from its header."""
    sizes: list[tuple[int, int]] = []
    for image in images:
        with _open(image, None) as picture:
            sizes.append(picture.size)
    return sizes


def decode(images: Sequence[Encoded], size: int | None, report: Callable[[float], None]) -> Tensor:
    """Decode N images to (N, C, H, W) uint8: C is 1 if all are grey, else 3. With `size`, resize to (size, size)."""
    if size is not None and not 1 <= size <= LARGEST:
        raise FedfuseError(f"size = {size}: give the side of the resized images in pixels, from 1 to {LARGEST:,}")
    if not images:
        raise FedfuseError("there are no images to decode: choose a split that is not empty")
    if (missing := next((row for row, image in enumerate(images) if not image), None)) is not None:
        raise FedfuseError(f"image {missing} is empty: remove its row")
    first = _open(images[0], None)
    try:
        return _decode(images, "L" if first.mode in GREY else "RGB", size, report)
    except _ColourAfterGreyError:
        return _decode(images, "RGB", size, report)


def _decode(images: Sequence[Encoded], mode: str, size: int | None, report: Callable[[float], None]) -> Tensor:
    first = _open(images[0], None)
    width, height = (size, size) if size else first.size
    channels = len(mode)
    # (height, width, channel) as in PIL: transposing all images at once is faster than one by one.
    out = np.empty((len(images), height, width, channels), np.uint8)

    def block(start: int) -> None:
        for row in range(start, min(start + BLOCK, len(images))):
            pixels = _pixels(images[row], first.format, mode, (width, height), size is not None, row)
            out[row] = np.frombuffer(pixels, np.uint8).reshape(height, width, channels)

    starts = range(0, len(images), BLOCK)
    for count in _in_order(block, starts, threads=first.size[0] * first.size[1] >= WORTH_A_THREAD):
        report(count / len(starts))
    return torch.from_numpy(out).permute(0, 3, 1, 2).contiguous()


def _in_order(work: Callable[[int], None], starts: Sequence[int], threads: bool) -> Iterable[int]:
    """Run `work` for each block, and yield the number of finished blocks."""
    if not threads:
        for count, start in enumerate(starts, 1):
            work(start)
            yield count
        return
    with ThreadPoolExecutor(cores()) as pool:
        for count, _ in enumerate(pool.map(work, starts), 1):
            yield count


def _pixels(image: Encoded, kind: str, mode: str, shape: tuple[int, int], resize: bool, row: int) -> bytes:
    picture = _open(image, kind)
    if mode == "L" and picture.mode not in GREY:
        raise _ColourAfterGreyError
    if picture.size != shape and not resize:
        raise FedfuseError(f"image {row} is {picture.size}, the first is {shape}: give size to resize all of them")
    try:
        if picture.mode != mode:
            picture = picture.convert(mode)
        if picture.size != shape:
            picture = picture.resize(shape, BOX if min(picture.size) >= max(shape) else BILINEAR)
        content: bytes = picture.tobytes()
    except (OSError, SyntaxError, ValueError) as error:  # what Pillow raises while it decodes
        raise FedfuseError(f"image {row}{_label(image)} cannot be decoded ({error}): remove or replace it") from error
    return content


def _label(image: Encoded) -> str:
    return f" ({image})" if isinstance(image, str) else ""


def _open(image: Encoded, kind: str | None) -> Any:
    from PIL import Image, UnidentifiedImageError

    label = image if isinstance(image, str) else f"{image[:12]!r}..."

    def open_as(formats: tuple[str, ...] | None) -> Any:
        return Image.open(image if isinstance(image, str) else io.BytesIO(image), formats=formats)

    if kind:  # the first image's format is nearly always right; without it Pillow tries a dozen
        try:
            return open_as((kind,))
        except (UnidentifiedImageError, SyntaxError, ValueError):
            pass
    try:
        return open_as(None)
    except FileNotFoundError as error:
        raise FedfuseError(f"there is no image {label}: restore it, or remove its row") from error
    except Image.DecompressionBombError as error:
        raise FedfuseError(f"{label} is too large an image ({error}): remove it, or make it smaller") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise FedfuseError(f"{label} is not an image that Pillow can read: remove it or convert it") from error
