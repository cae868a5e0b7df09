"""A small image generator: a flow transforms a standard normal latent, then a decoder turns it into an image.

The decoder is that of a variational autoencoder. The latents of the training images are not exactly the standard normal
that a VAE assumes, and samples between them decode to blurred images. So a flow, an ordinary differential equation in
latent space, first maps the normal to the distribution of the images' latents (Dai & Wipf 2019 use a second VAE for
this; the flow is that of Lipman et al. 2023, a plain regression). It is cheap, since it sees latents only.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfuse.models.norms import groups
from fedfuse.types import FedfuseError

Shape = tuple[int, int, int]

FLOW_STEPS = 12  # of the midpoint rule; 200 would change a pixel by 0.3 of 255 on average, on digits and fashion-mnist
FREQUENCIES = 8  # in the embedding of time
COARSE = 7  # the decoder starts from a map with sides of at most this
WIDEST = 4  # channels double as sides halve, up to this many times the width


class Generator(nn.Module):
    """z (B, Z), standard normal -> images (B, C, H, W) in [0, 1]. Named `generator:<width>`."""

    def __init__(self, latent: int, shape: Shape, width: int) -> None:
        super().__init__()
        if min(latent, width, *shape) < 1:
            raise FedfuseError(f"generator:{width} with latent {latent} and shape {shape}: all must be at least 1")
        self.latent, self.shape, self.width = latent, shape, width
        self.flow = Flow(latent, hidden=8 * width)
        self.decoder = Decoder(latent, shape, width)

    def forward(self, z: Tensor) -> Tensor:
        images: Tensor = self.decoder(self.flow(z))
        return images


class Flow(nn.Module):
    """z (B, Z), standard normal -> latents (B, Z) of the decoder: dz/dt = velocity(z, t), t from 0 to 1."""

    def __init__(self, latent: int, hidden: int) -> None:
        super().__init__()
        self.first = nn.Linear(latent + 2 * FREQUENCIES, hidden)
        self.hidden = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(2))
        self.last = nn.Linear(hidden, latent)
        # Zero velocity at first: an untrained flow is the identity, so the prior is that of a plain VAE.
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def velocity(self, z: Tensor, t: Tensor) -> Tensor:
        """The velocity (B, Z) at z (B, Z) and times t (B, 1)."""
        angles = t * torch.pi * 2.0 ** torch.arange(-1, FREQUENCIES - 1)
        h = F.silu(self.first(torch.cat((z, angles.sin(), angles.cos()), 1)))
        for layer in self.hidden:
            h = h + F.silu(layer(h))
        velocity: Tensor = self.last(h)
        return velocity

    def forward(self, z: Tensor) -> Tensor:
        step = 1 / FLOW_STEPS
        for i in range(FLOW_STEPS):
            t = z.new_full((len(z), 1), i * step)
            middle = z + step / 2 * self.velocity(z, t)
            z = z + step * self.velocity(middle, t + step / 2)
        return z


class Decoder(nn.Module):
    """Latents (B, Z) -> images (B, C, H, W) in [0, 1], by doubling the sides of a coarse map.

    The last doubling turns channels into pixels, so no convolution runs at full resolution, which would take most of
    the time.
    """

    def __init__(self, latent: int, shape: Shape, width: int) -> None:
        super().__init__()
        maps = _maps(shape, width)
        self.shape, self.start = shape, maps[-1]
        self.sides = [(high, wide) for _, high, wide in reversed(maps)]
        channels = [maps[-1][0], *(c for c, *_ in reversed(maps))]
        self.dense = nn.Linear(latent, prod(self.start))
        self.blocks = nn.ModuleList(_block(a, b) for a, b in pairwise(channels))
        self.last = nn.Sequential(nn.Conv2d(width, 4 * shape[0], 3, padding=1), nn.PixelShuffle(2), nn.Sigmoid())

    def forward(self, z: Tensor) -> Tensor:
        x = F.silu(self.dense(z)).view(-1, *self.start)
        for block, side in zip(self.blocks, self.sides, strict=True):
            x = block(F.interpolate(x, side))
        images: Tensor = self.last(x)
        return images[:, :, : self.shape[1], : self.shape[2]]  # odd sides were rounded up


class Encoder(nn.Module):
    """Images (B, C, H, W) in [0, 1] -> mean and log variance of their latents, (B, Z) each. Only training needs it."""

    def __init__(self, latent: int, shape: Shape, width: int) -> None:
        super().__init__()
        maps = _maps(shape, width)
        channels = [shape[0], *(c for c, *_ in maps)]
        self.blocks = nn.Sequential(*(_block(a, b, stride=2) for a, b in pairwise(channels)))
        self.hidden = _block(channels[-1], channels[-1])
        self.dense = nn.Linear(prod(maps[-1]), 2 * latent)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_variance = self.dense(self.hidden(self.blocks(x - 0.5)).flatten(1)).chunk(2, 1)
        return mean, log_variance


def _maps(shape: Shape, width: int) -> list[Shape]:
    """The inner maps (channels, height, width): half the image's sides (rounded up), a quarter, ... to the coarsest."""
    maps = [(width, _half(shape[1]), _half(shape[2]))]
    while max(maps[-1][1:]) > COARSE:
        channels, high, wide = maps[-1]
        maps.append((min(2 * channels, WIDEST * width), _half(high), _half(wide)))
    return maps


def _half(side: int) -> int:
    return -(-side // 2)


def _block(channels: int, out: int, stride: int = 1) -> nn.Sequential:
    # Group norm has no running statistics, so a frozen generator consists of its weights alone.
    return nn.Sequential(
        nn.Conv2d(channels, out, 3, stride, padding=1), nn.GroupNorm(groups(out), out), nn.SiLU(inplace=True)
    )
