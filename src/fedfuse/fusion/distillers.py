"""Distillers: train a student on the pool's soft labels, in place.

The loss is the mean over a batch, by default of KL(labels || student).
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from fedfuse import bounds
from fedfuse.compute import optimizers
from fedfuse.compute.batches import is_float16
from fedfuse.context import Context
from fedfuse.data.augment import augmentation
from fedfuse.fusion.batch_norm import recompute_batch_norm
from fedfuse.fusion.descent import Descent, Draw
from fedfuse.fusion.labelling import SoftLabels
from fedfuse.predict import Pool
from fedfuse.types import FedfuseError

EPOCHS = 20  # of SGD, if neither epochs nor steps are given: as in FedBE
Validate = Callable[[nn.Module], float]  # a net -> its accuracy on validation data


class DoesNotFitError(FedfuseError):
    """A distiller cannot work on a pool. Names of its settings in the text are in braces: `lower {batch_size}`."""

    def __init__(self, text: str, key: Callable[[str], str] = str) -> None:
        self.text = text
        super().__init__(re.sub(r"{(\w+)}", lambda match: key(match[1]), text))


@dataclass(frozen=True)
class Distillation:
    """The outcome of a distillation."""

    steps: int
    losses: Tensor  # (steps,) the loss of each step's batch
    reason: str  # why it ended
    validation: tuple[tuple[int, float], ...] = ()  # (step, accuracy)


class Distiller(Protocol):
    @property
    def batch_size(self) -> int: ...

    def plan(self, rows: int) -> int:
        """Return the most steps that it takes over a pool of `rows`; raise an error if it cannot work."""

    def __call__(
        self, net: nn.Module, pool: Pool, labels: SoftLabels, validate: Validate | None, draw: Draw
    ) -> Distillation:
        """Train `net` in place. Batches, augmentation and dropout draw from `draw`."""


@dataclass(frozen=True)
class AdamCosine:
    """FedDF's distiller: Adam, cosine annealing over `steps`, early stopping that keeps the best student on validation.

    It validates the start and every `every` steps, and stops after `patience` steps without a better accuracy. Without
    validation data it takes all steps and keeps the last student.
    """

    lr: float = 1e-3
    steps: int = 10_000
    batch_size: int = 128
    clip: float | None = 5.0
    patience: int = 1000
    every: int = 100
    augment: str = "none"
    keep_start: bool | None = None  # whether the start may be returned; None: where there is validation data

    def __post_init__(self) -> None:
        bounds.positive(self, lr=self.lr, steps=self.steps, batch_size=self.batch_size, clip=self.clip)
        bounds.positive(self, patience=self.patience, every=self.every)

    def check(self, ctx: Context) -> None:
        augmentation(self.augment, ctx.data.train.shape)
        _check_keep_start(self.keep_start, len(ctx.data.validation) > 0)

    def plan(self, rows: int) -> int:
        _batches_per_epoch(rows, self.batch_size)
        return self.steps

    def __call__(
        self, net: nn.Module, pool: Pool, labels: SoftLabels, validate: Validate | None, draw: Draw
    ) -> Distillation:
        adam = optimizers.Adam(_trainable(net), self.lr, fused=True, scaled=is_float16(net))
        descent = Descent(
            net, pool, labels, adam, lambda step: self.lr * _cosine(step - 1, self.steps),
            steps=self.plan(len(labels.rows)), batch_size=self.batch_size, clip=self.clip, augment=self.augment,
        )  # fmt: skip
        best = _BestStudent(net, validate, self.keep_start)
        return _early_stopping(descent, best, draw, self.every, self.patience)


@dataclass(frozen=True)
class SGD:
    """SGD with momentum, for `epochs` over the pool or for `steps`, by default 20 epochs: FedBE without SWA.

    With `every`, it validates every so many steps and keeps the best student; by default only after the last step. With
    `patience`, it stops after so many steps without a better accuracy, as AdamCosine does.
    """

    lr: float = 1e-3
    epochs: int | None = None
    steps: int | None = None
    batch_size: int = 128
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    clip: float | None = None
    per_class: bool = False  # the loss is also divided by C, as in FedBE's released code
    patience: int | None = None
    every: int | None = None
    augment: str = "none"
    keep_start: bool | None = None  # whether the start may be returned; None: where there is validation data

    def __post_init__(self) -> None:
        bounds.positive(self, lr=self.lr, epochs=self.epochs, batch_size=self.batch_size, steps=self.steps)
        bounds.positive(self, clip=self.clip, patience=self.patience, every=self.every)
        if self.patience is not None and self.every is None:
            raise FedfuseError(f"SGD(patience={self.patience}): give every, the number of steps between validations")
        if self.epochs is not None and self.steps is not None:
            raise FedfuseError(f"SGD(epochs={self.epochs}, steps={self.steps}): give only one of the two")

    def check(self, ctx: Context) -> None:
        augmentation(self.augment, ctx.data.train.shape)
        _check_keep_start(self.keep_start, len(ctx.data.validation) > 0)

    def plan(self, rows: int) -> int:
        per_epoch = _batches_per_epoch(rows, self.batch_size)
        return self.steps or per_epoch * (self.epochs or EPOCHS)

    def __call__(
        self, net: nn.Module, pool: Pool, labels: SoftLabels, validate: Validate | None, draw: Draw
    ) -> Distillation:
        steps = self.plan(len(labels.rows))
        descent = Descent(
            net, pool, labels, _sgd(net, self.lr, self.momentum, self.weight_decay),
            lambda step: self.lr * (_cosine(step - 1, steps) if self.schedule == "cosine" else 1.0),
            steps=steps, batch_size=self.batch_size, clip=self.clip, augment=self.augment, per_class=self.per_class,
        )  # fmt: skip
        best = _BestStudent(net, validate, self.keep_start)
        return _early_stopping(descent, best, draw, self.every, self.patience)


@dataclass(frozen=True)
class SWA:
    """FedBE's distiller: SGD with a rate that falls from `lr` to `lr_low` in each cycle; averages models at cycle ends.

    A model is collected at the end of each cycle that ends after step `swa_start`. Batch-norm statistics of the average
    are recomputed on the pool, without augmentation, as in later use. In a cycle of c steps, the rate of step i is
    (1 - t) lr + t lr_low with t = ((i - 1) mod c + 1) / c (Izmailov et al., 2018). By default `lr_low` is 0.4 lr, the
    paper's ratio; the schedule "constant", of the released code, stays at `lr`.
    """

    lr: float = 1e-3
    lr_low: float | None = None
    cycle: int = 25
    swa_start: int = 250
    epochs: int = 20
    batch_size: int = 128
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: Literal["cyclical", "constant"] = "cyclical"
    clip: float | None = None
    per_class: bool = False
    augment: str = "none"
    keep_start: bool | None = None  # whether the start may be returned; None: where there is validation data

    def __post_init__(self) -> None:
        bounds.positive(self, lr=self.lr, lr_low=self.lr_low, cycle=self.cycle, epochs=self.epochs)
        bounds.positive(self, batch_size=self.batch_size, clip=self.clip)
        bounds.not_negative(self, swa_start=self.swa_start)
        if self.lr_low is not None and self.schedule == "constant":
            raise FedfuseError(f"SWA(lr_low={self.lr_low}): a constant schedule stays at lr: leave lr_low out")

    def rate(self, step: int) -> float:
        """The learning rate of `step`, from 1."""
        low = self.lr if self.schedule == "constant" else 0.4 * self.lr if self.lr_low is None else self.lr_low
        t = ((step - 1) % self.cycle + 1) / self.cycle
        return (1 - t) * self.lr + t * low

    @property
    def first_collected(self) -> int:
        """The step after which the first model is collected."""
        return (self.swa_start // self.cycle + 1) * self.cycle

    def collects(self, step: int) -> bool:
        return step > self.swa_start and step % self.cycle == 0

    def check(self, ctx: Context) -> None:
        augmentation(self.augment, ctx.data.train.shape)
        _check_keep_start(self.keep_start, len(ctx.data.validation) > 0)

    def plan(self, rows: int) -> int:
        steps = self.epochs * _batches_per_epoch(rows, self.batch_size)
        if steps < self.first_collected:
            raise DoesNotFitError(
                f"SWA collects its first model at step {self.first_collected}, but {self.epochs} epochs over a pool of "
                f"{rows} in batches of {self.batch_size} are {steps} steps: lower {{swa_start}} or {{cycle}}, raise "
                "{epochs}, or use more data"
            )
        return steps

    def __call__(
        self, net: nn.Module, pool: Pool, labels: SoftLabels, validate: Validate | None, draw: Draw
    ) -> Distillation:
        steps = self.plan(len(labels.rows))
        descent = Descent(
            net, pool, labels, _sgd(net, self.lr, self.momentum, self.weight_decay), self.rate,
            steps=steps, batch_size=self.batch_size, clip=self.clip, augment=self.augment, per_class=self.per_class,
        )  # fmt: skip
        best = _BestStudent(net, validate, self.keep_start)
        average: AveragedModel | None = None
        for step in descent.walk(draw):
            if self.collects(step):
                average = average or AveragedModel(net)
                average.update_parameters(net)
        assert average is not None  # `plan` refuses fewer steps than the first cycle needs
        net.load_state_dict(average.module.state_dict())
        recompute_batch_norm(net, pool, labels.rows, self.batch_size, draw("batch norm"))
        best.offer(steps)
        return best.value(descent, f"all steps taken, {int(average.n_averaged)} models averaged")


class _BestStudent:
    """Validates a student, and keeps the best one so far, of equally good ones the first after the start.

    The start is a candidate unless `keep_start` is False. It must be better than every student: small validation sets
    have many ties. Without validation data the last student is the best.
    """

    def __init__(self, net: nn.Module, validate: Validate | None, keep_start: bool | None) -> None:
        _check_keep_start(keep_start, validate is not None)
        self._net, self._validate = net, validate
        self._accuracies: list[tuple[int, float]] = []
        self._accuracy = -math.inf
        self._state: dict[str, Tensor] = {}
        self.step = 0
        self.validates = validate is not None
        if keep_start is not False:
            self.offer(0)

    def offer(self, step: int) -> None:
        """Validate the student as it is after `step`."""
        if self._validate is None:
            return
        self._accuracies.append((step, self._validate(self._net)))
        accuracy = self._accuracies[-1][1]
        if accuracy > self._accuracy or (accuracy == self._accuracy and self.step == 0):
            self.step, self._accuracy = self._accuracies[-1]
            self._state = copy.deepcopy(self._net.state_dict())

    def value(self, descent: Descent, reason: str) -> Distillation:
        """Restore the best student. Return the outcome."""
        if self._state:
            self._net.load_state_dict(self._state)
            if self.step == 0:
                student = max(accuracy for step, accuracy in self._accuracies if step > 0)
                reason += f"; the start is kept: its validation accuracy is {self._accuracy:.4f}, the student's "
                reason += f"{student:.4f}"
        return Distillation(descent.taken, descent.losses(), reason, tuple(self._accuracies))


def _early_stopping(
    descent: Descent, best: _BestStudent, draw: Draw, every: int | None, patience: int | None
) -> Distillation:
    """Take the steps, validate every `every` and after the last, and stop after `patience` without a better student."""
    reason = "all steps taken"
    for step in descent.walk(draw):
        if step != descent.steps and (every is None or step % every):
            continue
        best.offer(step)
        if best.validates and patience is not None and step - best.step >= patience:
            reason = f"no better on validation for {patience} steps"
            break
    return best.value(descent, reason)


def _check_keep_start(keep_start: bool | None, validated: bool) -> None:
    if keep_start and not validated:
        raise FedfuseError(
            "keep_start compares the student with its start on validation data, and this distillation has none: set "
            "data.validation, or leave keep_start out"
        )


def refuse_keep_start(distiller: Distiller, why: str) -> None:
    """Refuse a distiller that must compare the student with its start, where it is used without validation data."""
    if isinstance(distiller, AdamCosine | SGD | SWA) and distiller.keep_start:
        raise FedfuseError(
            f"keep_start = True compares the student with its start on validation data, but {why}: leave keep_start out"
        )


def _trainable(net: nn.Module) -> list[nn.Parameter]:
    parameters = [p for p in net.parameters() if p.requires_grad]
    if not parameters:
        raise FedfuseError("the student has no parameter to train: unfreeze some, or give another student")
    return parameters


def _sgd(net: nn.Module, lr: float, momentum: float, weight_decay: float) -> optimizers.Optimizer:
    return optimizers.SGD(
        _trainable(net), lr, momentum=momentum, weight_decay=weight_decay, fused=True, scaled=is_float16(net)
    )


def _cosine(step: int, steps: int) -> float:
    """Return the cosine factor: 1 at step 0, 0 at `steps`."""
    return (1 + math.cos(math.pi * step / steps)) / 2


def _batches_per_epoch(rows: int, batch_size: int) -> int:
    if rows < batch_size:
        raise DoesNotFitError(
            f"the pool has {rows} examples, less than one batch of {batch_size}: give it more, or lower {{batch_size}}"
        )
    return rows // batch_size
