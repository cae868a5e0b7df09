"""Distillers: a student learns the pool's soft labels, in place. The loss is the mean of a batch, by default of
KL(labels || student)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from fedfuse import optimizers, rng
from fedfuse.data.augment import augmentation
from fedfuse.fusion.batch_norm import recompute_batch_norm
from fedfuse.fusion.labelling import SoftLabels
from fedfuse.fusion.loss import Loss, SoftCrossEntropy
from fedfuse.predict import Pool
from fedfuse.types import FedfuseError

Draw = Callable[[str], torch.Generator]  # a purpose -> its generator
Validate = Callable[[nn.Module], float]  # a net -> its accuracy on validation data
LOOK = 100  # steps between two looks at whether the loss is finite


@dataclass(frozen=True)
class Distillation:
    """How it went."""

    steps: int
    losses: Tensor  # (steps,) the KL of each step's batch
    reason: str  # why it ended
    validation: tuple[tuple[int, float], ...] = ()  # (step, accuracy)


class Distiller(Protocol):
    @property
    def batch_size(self) -> int: ...

    def plan(self, rows: int) -> int:
        """The steps that it takes at most over a pool of `rows`; an error where it could not work."""

    def __call__(
        self, net: nn.Module, pool: Pool, labels: SoftLabels, validate: Validate | None, draw: Draw
    ) -> Distillation:
        """Train `net` in place. Batches, augmentation and dropout draw from `draw`."""


@dataclass(frozen=True)
class AdamCosine:
    """FedDF's: Adam, cosine annealing over `steps`, early stopping on validation, where the best student is kept.

    Validation every `every` steps; after `patience` steps without a better accuracy it stops. Without validation
    data it takes all its steps and keeps the last. The start is no candidate: only distilled students are.
    """

    lr: float = 1e-3
    steps: int = 10_000
    batch_size: int = 128
    clip: float | None = 5.0
    patience: int = 1000
    every: int = 100
    augment: str = "none"
    loss: Loss = field(default_factory=SoftCrossEntropy)

    def __post_init__(self) -> None:
        _positive(self, lr=self.lr, steps=self.steps, batch_size=self.batch_size, patience=self.patience)
        _positive(self, every=self.every, clip=1.0 if self.clip is None else self.clip)

    def plan(self, rows: int) -> int:
        _batches_per_epoch(rows, self.batch_size)
        return self.steps

    def __call__(
        self, net: nn.Module, pool: Pool, labels: SoftLabels, validate: Validate | None, draw: Draw
    ) -> Distillation:
        adam = optimizers.Adam(_trainable(net), self.lr, fused=True)
        descent = Descent(
            net, pool, self.loss.learnt(labels), adam, lambda step: self.lr * _cosine(step - 1, self.steps),
            steps=self.plan(len(labels.rows)), batch_size=self.batch_size, clip=self.clip, augment=self.augment,
        )  # fmt: skip
        best, seen, reason = _Best(), [], "all steps taken"
        for step in descent.walk(draw):
            if validate is None or (step % self.every and step != self.steps):
                continue
            seen.append((step, validate(net)))
            best.offer(net, *seen[-1])
            if step - best.step >= self.patience:
                reason = f"no better on validation for {self.patience} steps"
                break
        best.restore(net)
        return Distillation(descent.taken, descent.losses(), reason, tuple(seen))


@dataclass(frozen=True)
class SGD:
    """Plain SGD with momentum, over `epochs` of the pool or, if given, `steps`: FedBE without SWA, v-Distillation."""

    lr: float = 1e-3
    epochs: int = 20
    batch_size: int = 128
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    steps: int | None = None
    clip: float | None = None
    per_class: bool = False  # the loss is also divided by C, as in FedBE's released code
    augment: str = "none"
    loss: Loss = field(default_factory=SoftCrossEntropy)

    def __post_init__(self) -> None:
        _positive(self, lr=self.lr, epochs=self.epochs, batch_size=self.batch_size)
        _positive(self, steps=1 if self.steps is None else self.steps, clip=1.0 if self.clip is None else self.clip)

    def plan(self, rows: int) -> int:
        per_epoch = _batches_per_epoch(rows, self.batch_size)
        return self.epochs * per_epoch if self.steps is None else self.steps

    def __call__(
        self, net: nn.Module, pool: Pool, labels: SoftLabels, validate: Validate | None, draw: Draw
    ) -> Distillation:
        steps = self.plan(len(labels.rows))
        descent = Descent(
            net, pool, self.loss.learnt(labels), _sgd(net, self.lr, self.momentum, self.weight_decay),
            lambda step: self.lr * (_cosine(step - 1, steps) if self.schedule == "cosine" else 1.0),
            steps=steps, batch_size=self.batch_size, clip=self.clip, augment=self.augment, per_class=self.per_class,
        )  # fmt: skip
        for _ in descent.walk(draw):
            pass
        seen = () if validate is None else ((steps, validate(net)),)
        return Distillation(steps, descent.losses(), "all steps taken", seen)


@dataclass(frozen=True)
class SWA:
    """FedBE's: SGD whose rate falls from `lr_high` to `lr_low` in each cycle; the average of the models at cycle ends.

    A model is collected at the end of each cycle that ends after step `start`. Batch-norm statistics of the average
    are recomputed on the pool, without augmentation, as it will be used. Within a cycle of c steps the rate of step i
    is (1 - t) lr_high + t lr_low with t = ((i - 1) mod c + 1) / c (Izmailov et al., 2018).
    """

    lr_high: float = 1e-3
    lr_low: float = 4e-4
    cycle: int = 25
    start: int = 250
    epochs: int = 20
    batch_size: int = 128
    momentum: float = 0.9
    weight_decay: float = 0.0
    clip: float | None = None
    per_class: bool = False
    augment: str = "none"
    loss: Loss = field(default_factory=SoftCrossEntropy)

    def __post_init__(self) -> None:
        _positive(self, lr_high=self.lr_high, lr_low=self.lr_low, cycle=self.cycle, epochs=self.epochs)
        _positive(self, batch_size=self.batch_size, clip=1.0 if self.clip is None else self.clip)
        if self.start < 0:
            raise FedfuseError(f"SWA(start={self.start}): the first step after which models are collected, from 0")

    def rate(self, step: int) -> float:
        """Of `step`, from 1."""
        t = ((step - 1) % self.cycle + 1) / self.cycle
        return (1 - t) * self.lr_high + t * self.lr_low

    def collects(self, step: int) -> bool:
        return step > self.start and step % self.cycle == 0

    def plan(self, rows: int) -> int:
        steps = self.epochs * _batches_per_epoch(rows, self.batch_size)
        first = (self.start // self.cycle + 1) * self.cycle
        if steps < first:
            raise FedfuseError(
                f"SWA collects its first model at step {first}, but {self.epochs} epochs over a pool of {rows} in "
                f"batches of {self.batch_size} are {steps} steps: "
                "lower its start (swa_start) or cycle, raise epochs, or use more data"
            )
        return steps

    def __call__(
        self, net: nn.Module, pool: Pool, labels: SoftLabels, validate: Validate | None, draw: Draw
    ) -> Distillation:
        steps = self.plan(len(labels.rows))
        descent = Descent(
            net, pool, self.loss.learnt(labels), _sgd(net, self.lr_high, self.momentum, self.weight_decay), self.rate,
            steps=steps, batch_size=self.batch_size, clip=self.clip, augment=self.augment, per_class=self.per_class,
        )  # fmt: skip
        average: AveragedModel | None = None
        for step in descent.walk(draw):
            if self.collects(step):
                average = average or AveragedModel(net)
                average.update_parameters(net)
        assert average is not None  # the plan made sure of it
        _copy(average.module, net)
        recompute_batch_norm(net, pool, labels.rows, self.batch_size, draw("batch norm"))
        seen = () if validate is None else ((steps, validate(net)),)
        reason = f"all steps taken, {int(average.n_averaged)} models averaged"
        return Distillation(steps, descent.losses(), reason, seen)


class Descent:
    """The loop that all distillers share: walk it, and each item is the number of steps taken so far."""

    def __init__(
        self,
        net: nn.Module,
        pool: Pool,
        labels: SoftLabels,
        optimizer: optimizers.Optimizer,
        rate: Callable[[int], float],  # of a step, from 1
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
        self._cross_entropies = torch.empty(steps)
        self._floors: list[Tensor] = []
        self._parameters = optimizer.parameters
        self._device = self._parameters[0].device
        self._softened = labels.temperature != 1
        self._scale = labels.temperature**2 / (labels.probs.shape[1] if per_class else 1)
        self._scaled = self._scale != 1

    def walk(self, draw: Draw) -> Iterator[int]:
        order, views, size = draw("order"), draw("augment"), len(self.labels.rows)
        change = None
        if self.augment != "none":
            change = augmentation(self.augment, tuple(self.pool.batch(self.labels.rows[:1]).shape[1:]))
        with _training(self.net, draw("layers")):
            while self.taken < self.steps:
                # In whole batches: what is left over comes up in another epoch's order.
                number = min(size // self.batch_size, self.steps - self.taken)
                drawn = torch.randperm(size, generator=order)[: number * self.batch_size].view(number, -1)
                self._floors.append(self.labels.floor[drawn].mean(1))
                for index in drawn:
                    x = self.pool.batch(self.labels.rows[index])
                    self._step(x if change is None else change(x, views), self.labels.probs[index])
                    yield self.taken
        self._check_finite()

    def _step(self, x: Tensor, probs: Tensor) -> None:
        """One gradient step on inputs (B, ...) with soft labels (B, C)."""
        logits = self.net(x.to(self._device))
        if self._softened:
            logits = logits / self.labels.temperature
        loss = F.cross_entropy(logits, probs.to(self._device))
        self.optimizer.zero_grad()
        (loss * self._scale if self._scaled else loss).backward()  # type: ignore[no-untyped-call]
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self._parameters, self.clip)
        self.optimizer.rate = self.rate(self.taken + 1)
        self.optimizer.step()
        self._cross_entropies[self.taken] = loss.detach()
        self.taken += 1
        if self.taken % LOOK == 0:
            self._check_finite()

    def _check_finite(self) -> None:
        recent = self._cross_entropies[max(0, self.taken - LOOK) : self.taken]
        if not bool(torch.isfinite(recent).all()):
            step = self.taken - len(recent) + int(torch.isfinite(recent).logical_not().nonzero()[0]) + 1
            raise FedfuseError(f"the loss of distillation step {step} is not finite: lower lr or clip the gradient")

    def losses(self) -> Tensor:
        """The KL of each step's batch (steps,): the cross entropy above its floor."""
        above = self._cross_entropies[: self.taken] - torch.cat(self._floors)[: self.taken]
        return above * self.labels.temperature**2


@contextmanager
def _training(net: nn.Module, layers: torch.Generator) -> Iterator[None]:
    """Train mode with gradients, whatever the caller's; layers that draw for themselves (dropout) use `layers`."""
    with torch.enable_grad(), rng.ambient(layers):
        net.train()
        yield


class _Best:
    """The best student on validation so far; of equals the first."""

    def __init__(self) -> None:
        self.step, self.accuracy = 0, -math.inf
        self._state: dict[str, Tensor] = {}

    def offer(self, net: nn.Module, step: int, accuracy: float) -> None:
        if accuracy > self.accuracy:
            self.step, self.accuracy = step, accuracy
            self._state = copy.deepcopy(net.state_dict())

    def restore(self, net: nn.Module) -> None:
        if self._state:
            net.load_state_dict(self._state)


def _copy(source: nn.Module, target: nn.Module) -> None:
    target.load_state_dict(source.state_dict())


def _trainable(net: nn.Module) -> list[nn.Parameter]:
    parameters = [p for p in net.parameters() if p.requires_grad]
    if not parameters:
        raise FedfuseError("the student has no parameter to train: all are frozen, or it has none")
    return parameters


def _sgd(net: nn.Module, lr: float, momentum: float, weight_decay: float) -> optimizers.Optimizer:
    return optimizers.SGD(_trainable(net), lr, momentum=momentum, weight_decay=weight_decay, fused=True)


def _cosine(step: int, steps: int) -> float:
    """From 1 at step 0 to 0 at `steps`."""
    return (1 + math.cos(math.pi * step / steps)) / 2


def _batches_per_epoch(rows: int, batch_size: int) -> int:
    if rows < batch_size:
        raise FedfuseError(
            f"the pool has {rows} examples, less than one batch of {batch_size}: give it more, or lower batch_size"
        )
    return rows // batch_size


def _positive(distiller: object, **values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise FedfuseError(f"{type(distiller).__name__}({name}={value}): it must be positive")
