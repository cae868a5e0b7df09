"""Sample from a frozen generator (FedDF, Figure 5), batch by batch, in eval mode and without gradients.

A generator is any module from standard normal latents (B, Z) to inputs (B, ...). Images are floats in [0, 1],
(B, C, H, W); values slightly outside are clamped. Features have the scale of the data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from fedfuse import rng as keyed
from fedfuse import signature
from fedfuse.compute.threads import threads
from fedfuse.data.generators.file import load_generator
from fedfuse.types import FedfuseError

BATCH = 256
SLACK = 0.05  # how far outside [0, 1] a linear last layer may go
BEYOND = 0.25  # a larger share of values outside this range means that the module has another range


@dataclass(frozen=True)
class Frozen:
    """A generator and the size Z of its latents; `name` is for messages."""

    name: str
    net: nn.Module
    latent: int


def frozen(generator: str, latent: int | None = None) -> Frozen:
    """The generator of a file that `fedfuse generator train` wrote, or that `package.module:factory` returns."""
    path = Path(generator).expanduser()
    if not path.exists() and re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", generator):
        return _own(generator, latent)
    net = load_generator(path)
    if latent not in (None, net.latent):
        raise FedfuseError(f"generator {generator} has latents of {net.latent}, not of {latent}: leave latent out")
    return Frozen(generator, net, net.latent)


def generated(generator: Frozen, size: int, rng: torch.Generator, *, images: bool) -> Tensor:
    """`size` samples: images (N, C, H, W) uint8, or features (N, ...) float32."""
    if size < 1:
        raise FedfuseError(f"generator {generator.name}: size = {size}: give at least 1")
    out = None
    # One thread, so that the bits are the same on every machine; `ambient`, for modules that draw noise themselves.
    with threads(1), keyed.ambient(rng), torch.no_grad():
        generator.net.eval()
        for first in range(0, size, BATCH):
            z = torch.randn(min(BATCH, size - first), generator.latent, generator=rng)
            x = _call(generator, z)
            batch = _bytes(generator, x) if images else x.float()
            if out is None:
                out = torch.empty(size, *batch.shape[1:], dtype=batch.dtype)
            out[first : first + len(batch)] = batch
    assert out is not None
    return out


def _own(reference: str, latent: int | None) -> Frozen:
    factory = signature.import_function(reference, "generator")
    try:
        # Randomly initialised weights must be the same in every process.
        with keyed.ambient(keyed.generator(0, "generator factory")):
            net = factory()
    except Exception as error:  # a user's code may raise anything
        raise FedfuseError(
            f"generator {reference}() raised {type(error).__name__}: {error}. A factory takes no arguments and returns "
            "a torch.nn.Module from latents (B, Z) to inputs"
        ) from error
    if not isinstance(net, nn.Module):
        raise FedfuseError(f"generator {reference} returned a {type(net).__name__}: it must return a torch.nn.Module")
    size = getattr(net, "latent", None) if latent is None else latent
    if not isinstance(size, int) or size < 1:
        raise FedfuseError(
            f"generator {reference} has no latent size (latent = {size!r}): "
            "give its module an attribute `latent: int`, or set data.pool.latent"
        )
    return Frozen(reference, net, size)


def _call(generator: Frozen, z: Tensor) -> Tensor:
    """The generator's output (B, ...) for z (B, Z), checked to be finite floats."""
    what = f"generator {generator.name}"
    try:
        x = generator.net(z)
    except Exception as error:  # a user's module may raise anything
        raise FedfuseError(
            f"{what} fails on latents of shape {tuple(z.shape)} ({type(error).__name__}: {error}): "
            "check its latent size, set by its attribute `latent` or by data.pool.latent"
        ) from error
    if not isinstance(x, Tensor) or x.dim() < 2 or len(x) != len(z) or not x.is_floating_point():
        output = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise FedfuseError(f"{what} returned {output} for {len(z)} latents: it must return floats ({len(z)}, ...)")
    if not bool(x.isfinite().all()):
        raise FedfuseError(
            f"{what} returned {int((~x.isfinite()).sum())} values that are not finite, of {x.numel()}: "
            "its weights are damaged or its training was interrupted; train it again"
        )
    return x


def _bytes(generator: Frozen, x: Tensor) -> Tensor:
    """Images (B, C, H, W) in [0, 1] -> uint8."""
    what = f"generator {generator.name}"
    if x.dim() != 4:
        raise FedfuseError(
            f"{what} returned samples of shape {tuple(x.shape[1:])}, but the training data is images: it must return "
            f"({len(x)}, C, H, W)"
        )
    if float(((x < -SLACK) | (x > 1 + SLACK)).float().mean()) > BEYOND:
        raise FedfuseError(
            f"{what} returned values from {float(x.min()):.3g} to {float(x.max()):.3g}: images are floats in [0, 1]; "
            "if its range is [-1, 1], let its module return (x + 1) / 2"
        )
    return x.float().clamp(0, 1).mul(255).round().to(torch.uint8)
