"""Data that needs no download: scikit-learn's digits, a swiss roll, and synthetic prototypes in noise."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedfuse import bounds, rng
from fedfuse.data.sources.location import Location
from fedfuse.data.sources.source import Rows, Source
from fedfuse.data.sources.tables import held_out
from fedfuse.types import FedfuseError

CHUNK = 4096
_FLOAT = 4  # bytes


def digits(location: Location) -> Source:
    """Handwritten digits from scikit-learn: 1,437 + 360 grey images of 8x8, 10 classes."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = torch.from_numpy(np.rint(bunch.images * (255 / 16)).astype(np.uint8))[:, None]
    y = torch.from_numpy(bunch.target).long()
    # 0.2 x 1,797 is 359.4: 360 are held out, as scikit-learn's own splitter rounds up.
    return held_out((x, y, {}), tuple("0123456789"), math.ceil(0.2 * len(y)))


def swiss_roll(
    location: Location,
    *,
    examples: int = 3000,
    classes: int = 3,
    noise: float = 0.5,
    start: float = 1.5,
    end: float = 4.5,
    seed: int = 0,
) -> Source:
    """A toy problem in the plane: interleaved spiral arms, one per class (after FedBE's Figure 1).

    The figure shows three classes on a swiss roll in the plane; the paper gives neither its noise nor its size.
    Here each class is scikit-learn's roll without its depth, rotated by an equal share of the circle: its radius is its
    angle, which goes from `start` to `end` times pi. The test data has a fifth as many examples, in addition.
    """
    bounds.positive("swiss-roll", examples=examples, classes=classes, start=start)
    if end <= start:
        raise FedfuseError(
            f"swiss-roll: end is {end:g} and start {start:g}: the arms run outwards, so give a larger end"
        )
    bounds.fits_memory("swiss-roll", 2 * _FLOAT * examples)
    tests = max(classes, examples // 5)
    train, test = (
        _rolls(total, classes, noise, (start, end), rng.key(seed, "swiss-roll", part))
        for part, total in (("train", examples), ("test", tests))
    )
    return Source.of(train, test, tuple(f"arm {c}" for c in range(classes)))


def _rolls(total: int, classes: int, noise: float, turns: tuple[float, float], key: int) -> Rows:
    start, end = turns
    # The draws are those of scikit-learn's make_swiss_roll (1.5 to 4.5 pi); the second one is its depth.
    draw = np.random.RandomState(key % 2**32)
    along, _ = start * math.pi * (1 + (end / start - 1) * draw.uniform(size=total)), draw.uniform(size=total)
    points = np.stack((along * np.cos(along), np.zeros(total), along * np.sin(along)))
    points += noise * draw.standard_normal(size=(3, total))
    y = torch.arange(total) % classes
    angle = y * (2 * math.pi / classes)
    x, z = torch.from_numpy(points[[0, 2]]).unbind(0)
    arms = torch.stack((x * angle.cos() - z * angle.sin(), x * angle.sin() + z * angle.cos()), 1)
    return arms.float(), y, {}


def synthetic(
    location: Location,
    *,
    examples: int = 5000,
    classes: int = 10,
    shape: tuple[int, ...] = (3, 32, 32),
    noise: float = 0.5,
    seed: int = 0,
) -> Source:
    """Synthetic data of any shape: one prototype per class, mixed with noise from 0 (none) to 1 (only noise).

    A shape of three dimensions gives uint8 images, whose prototypes are blurred patches, so that they stay recognisable
    when shifted. Other shapes give float features. The test data has a fifth as many examples, in addition.
    """
    bounds.positive("synthetic", examples=examples, classes=classes)
    if not shape or min(shape) < 1:
        raise FedfuseError(f"synthetic: shape is {list(shape)}: give one or more positive numbers")
    bounds.fits_memory("synthetic", math.prod(shape) * _FLOAT * (examples + classes))
    if not 0 <= noise <= 1:
        raise FedfuseError(f"synthetic: noise is {noise}: give a number from 0 (none) to 1 (only noise)")
    tests = max(classes, examples // 5)
    prototypes = _prototypes(classes, shape, rng.generator(seed, "synthetic", "prototypes"))
    draw = _images if len(shape) == 3 else _features
    train, test = (
        draw(prototypes, total, noise, rng.generator(seed, "synthetic", part))
        for part, total in (("train", examples), ("test", tests))
    )
    return Source.of(train, test, tuple(str(c) for c in range(classes)))


def _prototypes(classes: int, shape: tuple[int, ...], draw: torch.Generator) -> Tensor:
    """(classes, *shape) in 0..1 for images, standard normal for features."""
    if len(shape) != 3:
        return torch.randn(classes, *shape, generator=draw)
    channels, height, width = shape
    patches = torch.rand(classes, channels, max(1, height // 4), max(1, width // 4), generator=draw)
    return F.interpolate(patches, (height, width), mode="bilinear", align_corners=False)


def _images(prototypes: Tensor, total: int, noise: float, draw: torch.Generator) -> Rows:
    y = torch.arange(total) % len(prototypes)
    signal = (prototypes * (255 * (1 - noise))).to(torch.uint8)
    # Scale random bytes by a table: a fraction of the cost of normal floats, and signal + noise fits in a byte.
    table = bytes(int(byte * noise) for byte in range(256))
    x = torch.empty(total, *prototypes.shape[1:], dtype=torch.uint8)
    random = np.random.Generator(np.random.PCG64(int(torch.randint(2**62, (), generator=draw))))
    for rows, labels in zip(torch.split(x, CHUNK), torch.split(y, CHUNK), strict=True):
        grain = np.frombuffer(bytearray(random.bytes(rows.numel()).translate(table)), np.uint8)
        torch.add(signal[labels], torch.from_numpy(grain).view(rows.shape), out=rows)
    return x, y, {}


def _features(prototypes: Tensor, total: int, noise: float, draw: torch.Generator) -> Rows:
    y = torch.arange(total) % len(prototypes)
    grain = torch.randn(total, *prototypes.shape[1:], generator=draw)
    return grain.mul_(noise).add_(prototypes[y], alpha=1 - noise), y, {}
