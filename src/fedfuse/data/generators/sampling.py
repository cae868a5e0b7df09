"""Samples of a frozen generator (FedDF, Figure 5), a batch at a time, in eval mode and without gradients.

A generator is any module from standard normal latents (B, Z) to inputs (B, ...). Where the inputs are images it gives
floats in [0, 1], (B, C, H, W); a little beyond is clamped. Where they are features it gives them as the data has them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from fedfuse import rng as keyed
from fedfuse import signature
from fedfuse.data.generators.file import load_generator
from fedfuse.threads import threads
from fedfuse.types import FedfuseError

BATCH = 256
SLACK = 0.05  # how far beyond [0, 1] a linear last layer may go
BEYOND = 0.25  # the share of values that go further which shows that the module has another range


@dataclass(frozen=True)
class Frozen:
    """A generator and the size Z of its latents; `name` is for messages."""

    name: str
    net: nn.Module
    latent: int


def frozen(generator: str, latent: int | None = None) -> Frozen:
    """The generator of a file that `fedfuse generator train` wrote, or what `package.module:factory` gives."""
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
        raise FedfuseError(f"generator {generator.name}: size = {size}: ask for 1 sample or more")
    out = None
    # One thread, so that the bits depend on no machine; `ambient`, for modules that draw noise of their own.
    with threads(1), keyed.ambient(rng), torch.no_grad():
        generator.net.eval()
        for first in range(0, size, BATCH):
            z = torch.randn(min(BATCH, size - first), generator.latent, generator=rng)
            x = _sampled(generator, z)
            batch = _bytes(generator, x) if images else x.float()
            if out is None:
                out = torch.empty(size, *batch.shape[1:], dtype=batch.dtype)
            out[first : first + len(batch)] = batch
    assert out is not None
    return out


def _own(reference: str, latent: int | None) -> Frozen:
    factory = signature.imported(reference, "generator")
    try:
        # Weights that are not loaded but drawn have to be the same in every process.
        with keyed.ambient(keyed.generator(0, "generator factory")):
            net = factory()
    except Exception as error:  # whatever a user's code raises, the reader should know which code
        raise FedfuseError(
            f"generator {reference}() raised {type(error).__name__}: {error}. A factory takes no arguments and returns "
            "a torch.nn.Module from latents (B, Z) to inputs"
        ) from error
    if not isinstance(net, nn.Module):
        raise FedfuseError(f"generator {reference} gave a {type(net).__name__}: it must give a torch.nn.Module")
    size = getattr(net, "latent", None) if latent is None else latent
    if not isinstance(size, int) or size < 1:
        raise FedfuseError(
            f"generator {reference} does not say the size of its latents (latent = {size!r}): "
            "give its module an attribute `latent: int`, or set data.pool.latent"
        )
    return Frozen(reference, net, size)


def _sampled(generator: Frozen, z: Tensor) -> Tensor:
    """(B, ...) finite floats for z (B, Z)."""
    what = f"generator {generator.name}"
    try:
        x = generator.net(z)
    except Exception as error:  # a user's module may raise anything
        raise FedfuseError(
            f"{what} fails on latents of shape {tuple(z.shape)} ({type(error).__name__}: {error}): "
            "check its latent size, set by its attribute `latent` or by data.pool.latent"
        ) from error
    if not isinstance(x, Tensor) or x.dim() < 2 or len(x) != len(z) or not x.is_floating_point():
        got = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise FedfuseError(f"{what} gave {got} for {len(z)} latents: it must give floats ({len(z)}, ...)")
    if not bool(x.isfinite().all()):
        raise FedfuseError(
            f"{what} gave {int((~x.isfinite()).sum())} values that are not finite among {x.numel()}: "
            "its weights are damaged or it was not trained to its end; train it again"
        )
    return x


def _bytes(generator: Frozen, x: Tensor) -> Tensor:
    """Images (B, C, H, W) in [0, 1] -> uint8."""
    what = f"generator {generator.name}"
    if x.dim() != 4:
        raise FedfuseError(
            f"{what} gave samples of shape {tuple(x.shape[1:])}, but the training data is images: it must give "
            f"({len(x)}, C, H, W)"
        )
    if float(((x < -SLACK) | (x > 1 + SLACK)).float().mean()) > BEYOND:
        raise FedfuseError(
            f"{what} gave values from {float(x.min()):.3g} to {float(x.max()):.3g}: images are floats in [0, 1]; "
            "where it gives [-1, 1], have its module return (x + 1) / 2"
        )
    return x.float().clamp(0, 1).mul(255).round().to(torch.uint8)
