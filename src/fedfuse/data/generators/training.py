"""Train a generator on public images.

An autoencoder with a flow is used, not a GAN, because both stages are plain regressions, whose losses show the progress
of training. A GAN can be sharper, but its losses do not show whether it dropped classes, and a student learns nothing
about classes that the pool lacks. (No GAN was measured; the plain VAE was: on digits, a classifier is more certain of
samples that went through the flow, mean entropy 0.32 against 0.52, and predicts the classes in even shares.)

1. Encoder and decoder maximise the evidence lower bound with a Gaussian pixel whose variance is the best fit, the mean
   squared error (Rybkin et al. 2021, sigma-VAE). So no weight between sharpness and prior has to be set.
2. The flow learns to map a standard normal to the encoder's latents (Lipman et al. 2023): at points on the line from
   one to the other, it predicts the direction of the line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Adam
from torch.optim.lr_scheduler import OneCycleLR

from fedfuse import bounds, rng
from fedfuse.compute.threads import threads
from fedfuse.data.examples import Examples
from fedfuse.data.generators.net import Decoder, Encoder, Flow, Generator, Shape
from fedfuse.types import FedfuseError

Watch = Callable[[str, int, int, float], None]  # (stage, step, number of steps, loss at this step)

ROUNDING = 1 / (12 * 255**2)  # variance from rounding a pixel to a byte, a lower bound of the error
CLIP = 1.0  # the maximal norm of a gradient
ENCODED = 20_000  # the flow learns from the latents of at most this many images
CHUNK = 1024  # images encoded at a time


@dataclass(frozen=True)
class Trained:
    """A generator, and the losses of its two stages at each step."""

    net: Generator
    pixels: tuple[float, ...]  # negative evidence bound per pixel value, in nats, up to a constant
    latents: tuple[float, ...]  # squared error of the flow's direction


@dataclass(frozen=True)
class Trainer:
    """Train a generator with `Trainer(steps=1200)(images)`; each stage takes `steps` steps."""

    latent: int = 16
    width: int = 32
    steps: int = 1200
    batch_size: int = 128
    lr: float = 2e-3
    seed: int = 0

    def __post_init__(self) -> None:
        bounds.positive("generator", latent=self.latent, width=self.width, steps=self.steps)
        bounds.positive("generator", batch_size=self.batch_size, lr=self.lr)

    def __call__(self, images: Examples, watch: Watch = lambda *_: None) -> Trained:
        """Train a generator. The same images and settings give the same bits."""
        shape = image_shape(images)
        with threads(1):
            with rng.ambient(rng.generator(self.seed, "generator init")):
                net, encoder = Generator(self.latent, shape, self.width), Encoder(self.latent, shape, self.width)
            pixels = self._autoencode(net.decoder, encoder, images, watch)
            latents = self._train_flow(net.flow, *self._encode(encoder, images), watch)
        return Trained(net.eval(), pixels, latents)

    def _autoencode(self, decoder: Decoder, encoder: Encoder, images: Examples, watch: Watch) -> tuple[float, ...]:
        draws = rng.generator(self.seed, "generator pixels")

        def loss() -> Tensor:
            x = floats(images.tensor.index_select(0, self._rows(len(images), draws)))
            mean, log_variance = encoder(x)
            z = _latents(mean, log_variance, draws)
            error = (decoder(z) - x).square().mean()
            divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum(1).mean() / 2
            bound: Tensor = (error + ROUNDING).log() / 2 + divergence / x[0].numel()
            return bound

        return self._minimise("images", loss, [*encoder.parameters(), *decoder.parameters()], watch)

    def _encode(self, encoder: Encoder, images: Examples) -> tuple[Tensor, Tensor]:
        """Means and log variances (n, Z) of the latents of random images, at most ENCODED."""
        rows = torch.randperm(len(images), generator=rng.generator(self.seed, "generator encoded"))[:ENCODED]
        with torch.no_grad():
            pairs = [encoder(floats(images.tensor.index_select(0, chunk))) for chunk in torch.split(rows, CHUNK)]
        return torch.cat([mean for mean, _ in pairs]), torch.cat([log_variance for _, log_variance in pairs])

    def _train_flow(self, flow: Flow, means: Tensor, log_variances: Tensor, watch: Watch) -> tuple[float, ...]:
        draws = rng.generator(self.seed, "generator latents")

        def loss() -> Tensor:
            rows = self._rows(len(means), draws)
            goal = _latents(means[rows], log_variances[rows], draws)
            start = torch.randn(goal.shape, generator=draws)
            t = torch.rand(len(goal), 1, generator=draws)
            return (flow.velocity(start + t * (goal - start), t) - (goal - start)).square().mean()

        return self._minimise("latents", loss, flow.parameters(), watch)

    def _rows(self, number: int, draws: torch.Generator) -> Tensor:
        return torch.randint(number, (self.batch_size,), generator=draws)

    def _minimise(
        self, stage: str, loss: Callable[[], Tensor], parameters: Iterable[nn.Parameter], watch: Watch
    ) -> tuple[float, ...]:
        weights, losses = list(parameters), []
        optimizer = Adam(weights, lr=self.lr)
        schedule = OneCycleLR(optimizer, self.lr, total_steps=self.steps + 1, cycle_momentum=False)
        for step in range(1, self.steps + 1):
            value = loss()
            optimizer.zero_grad()
            value.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(weights, CLIP)
            optimizer.step()
            schedule.step()
            losses.append(value.item())
            if not math.isfinite(losses[-1]):
                raise FedfuseError(
                    f"generator: the loss of stage {stage} is {losses[-1]} at step {step}: lower lr = {self.lr}"
                )
            watch(stage, step, self.steps, losses[-1])
        return tuple(losses)


def image_shape(examples: Examples) -> Shape:
    """The shape (C, H, W) of the images. Raise a FedfuseError if the data is not images."""
    if examples.tensor.dtype != torch.uint8 or examples.tensor.dim() != 4 or not len(examples):
        raise FedfuseError(
            f"a generator is trained on images, but this data is {len(examples)} examples of "
            f"{examples.tensor.dtype} {examples.shape}: choose a source of images, such as digits"
        )
    channels, height, width = examples.shape
    return channels, height, width


def floats(x: Tensor) -> Tensor:
    """Images (B, C, H, W) uint8 -> float32 in [0, 1]."""
    return x.to(torch.float32, memory_format=torch.channels_last).div_(255)


def _latents(mean: Tensor, log_variance: Tensor, draws: torch.Generator) -> Tensor:
    return mean + (log_variance / 2).exp() * torch.randn(mean.shape, generator=draws)
