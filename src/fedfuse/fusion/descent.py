"""The training loop that all distillers share: gradient steps on batches of the pool and their soft labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfuse import rng
from fedfuse.compute import optimizers
from fedfuse.compute.batches import Batch, forward, images_of
from fedfuse.compute.feed import Feed
from fedfuse.data.augment import augmentation
from fedfuse.fusion.labelling import SoftLabels
from fedfuse.predict import Pool
from fedfuse.types import NotFiniteError

Draw = Callable[[str], torch.Generator]  # a purpose -> its generator
CHECK_EVERY = 100  # steps between two checks that the loss is finite


class Descent:
    """The steps of one student. `walk` yields the number of steps so far."""

    def __init__(
        self,
        net: nn.Module,
        pool: Pool,
        labels: SoftLabels,
        optimizer: optimizers.Optimizer,
        rate: Callable[[int], float],  # the learning rate of a step, from 1
        *,
        steps: int,
        batch_size: int,
        clip: float | None = None,
        augment: str = "none",
        per_class: bool = False,
    ) -> None:
        self.net, self.pool, self.labels, self.optimizer, self.rate = net, pool, labels, optimizer, rate
        self.steps, self.batch_size, self.clip, self.augment = steps, batch_size, clip, augment
        self.taken = 0
        self._floors: list[Tensor] = []
        self._device = optimizer.parameters[0].device
        self._cross_entropies = torch.empty(steps, device=self._device)  # reading one would wait for the device
        self._has_temperature = labels.temperature != 1
        self._scale = labels.temperature**2 / (labels.probs.shape[1] if per_class else 1)
        self._has_scale = self._scale != 1

    def walk(self, draw: Draw) -> Iterator[int]:
        """Take the steps. Batches, augmentation and random layers draw from `draw`."""
        augment_rng, feed = draw("augment"), Feed(self.pool, self.labels.rows, self._device, self.labels.probs)
        change = None
        if self.augment != "none":
            change = augmentation(self.augment, tuple(images_of(self.pool.batch(self.labels.rows[:1])).shape[1:]))
        with _training(self.net, draw("layers")):
            for x, probs in feed(self._batches(draw("order"))):
                self._step(x if change is None else change(images_of(x), augment_rng), probs)
                yield self.taken
        self._check_finite()

    def _batches(self, order: torch.Generator) -> Iterator[Tensor]:
        """Yield the positions (B,) of each step among the labels' rows. They may be read one step ahead."""
        size, planned = len(self.labels.rows), 0
        while planned < self.steps:
            # Only whole batches: each epoch has another order, so the rows left out change.
            number = min(size // self.batch_size, self.steps - planned)
            batches = torch.randperm(size, generator=order)[: number * self.batch_size].view(number, -1)
            self._floors.append(self.labels.floor[batches].mean(1))
            planned += number
            yield from batches

    def _step(self, x: Batch, probs: Tensor) -> None:
        """One gradient step on inputs (B, ...) with soft labels (B, C)."""
        logits = forward(self.net, x)
        if self._has_temperature:
            logits = logits / self.labels.temperature
        loss = F.cross_entropy(logits, probs)
        self.optimizer.rate = self.rate(self.taken + 1)
        self.optimizer.minimise(loss * self._scale if self._has_scale else loss, self.clip)
        self._cross_entropies[self.taken] = loss.detach()
        self.taken += 1
        if self.taken % CHECK_EVERY == 0:
            self._check_finite()

    def _check_finite(self) -> None:
        recent = self._cross_entropies[max(0, self.taken - CHECK_EVERY) : self.taken].cpu()
        if not bool(torch.isfinite(recent).all()):
            step = self.taken - len(recent) + int(torch.isfinite(recent).logical_not().nonzero()[0]) + 1
            raise NotFiniteError(f"the loss of distillation step {step} is not finite: lower lr or clip the gradient")

    def losses(self) -> Tensor:
        """Return the loss of each step's batch (steps,): the cross entropy minus its floor."""
        excess = self._cross_entropies[: self.taken].cpu() - torch.cat(self._floors)[: self.taken]
        return excess * self.labels.temperature**2


@contextmanager
def _training(net: nn.Module, layers: torch.Generator) -> Iterator[None]:
    """Enable train mode and gradients. Layers that draw random numbers (dropout) draw from `layers`."""
    with torch.enable_grad(), rng.ambient(layers, next(net.parameters()).device):
        net.train()
        yield
