"""A client's work in one round: load the received model, train it on the client's own examples, and send it back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfuse.compute.batches import Batch, images_of, is_float16
from fedfuse.compute.feed import Feed
from fedfuse.compute.optimizers import SGD, Adam, Optimizer
from fedfuse.context import Context
from fedfuse.data.augment import augmentation
from fedfuse.local.reports import LocalResult, Report
from fedfuse.local.terms import CrossEntropy, Local, Term
from fedfuse.local_settings import LocalSettings
from fedfuse.types import FedfuseError, Groups, Snapshot, Task, Tensors, Update


def optimizer(net: nn.Module, settings: LocalSettings, rate: float) -> Optimizer:
    """Return a new optimizer: no state survives a round, as in all three papers."""
    if settings.optimizer == "adam":
        return Adam(net.parameters(), rate, weight_decay=settings.weight_decay, scaled=is_float16(net))
    momentum, weight_decay = settings.momentum, settings.weight_decay
    return SGD(net.parameters(), rate, momentum=momentum, weight_decay=weight_decay, scaled=is_float16(net))


def cuts(examples: int, batch_size: int) -> list[tuple[int, int]]:
    """Return the batches of an epoch as (start, stop). A last batch of one joins the previous: batch norm needs two."""
    starts = list(range(0, examples, batch_size))
    if len(starts) > 1 and batch_size > 1 and examples - starts[-1] == 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], examples], strict=True))


def batches(rows: Tensor, settings: LocalSettings, epochs: int | None, shuffle: torch.Generator) -> Iterator[Tensor]:
    """Yield the row numbers (B,) of each step, in a new order every epoch."""
    step = 0
    epoch = 0
    while epochs is None or epoch < epochs:
        order = rows[torch.randperm(len(rows), generator=shuffle)]
        for start, stop in cuts(len(rows), settings.batch_size):
            if step == settings.steps:
                return
            yield order[start:stop]
            step += 1
        epoch += 1


def number_of_steps(examples: int, settings: LocalSettings, epochs: int | None) -> int:
    """Return the number of a client's steps in a round."""
    return settings.steps or (epochs or 0) * len(cuts(examples, settings.batch_size))


def drawn_epochs(client: int, ctx: Context) -> int | None:
    """Return the epochs of this client in this round: with stragglers, drawn uniformly from 1..epochs."""
    epochs = ctx.local.epochs
    if epochs is None or not ctx.local.stragglers:
        return epochs
    return int(torch.randint(1, epochs + 1, (), generator=ctx.rng("stragglers", ctx.round, client)))


@dataclass(frozen=True)
class Training:
    """Takes gradient steps on the sum of the terms, then calls the reports."""

    terms: tuple[Term, ...] = (CrossEntropy(),)
    reports: tuple[Report, ...] = ()

    def check(self, ctx: Context) -> None:
        augmentation(ctx.local.augment, ctx.data.train.shape)

    def __call__(self, task: Task, memory: Groups, ctx: Context) -> Update:
        if task.model is None:
            raise FedfuseError(f"client {task.client} was sent no model to train: brief it with SendModel()")
        start = ctx.precision(task.client).trained(task.model)
        net = ctx.nets.load(start).train()
        local = Local([p.detach().clone() for p in net.parameters()], task.extra, memory, start, ctx.nets)
        with ctx.nets.layer_randomness(start.arch, ctx.rng("layers", task.round, task.client)):
            steps, loss = self._train(net, local, task.client, ctx)
        result = LocalResult(task, memory, Snapshot.of(task.model.arch, net), steps)
        extra: dict[str, Tensors] = {}
        next_memory: dict[str, Tensors] = {}
        for report in self.reports:
            sends, keeps = report(result, ctx)
            extra |= sends
            next_memory |= keeps
        rows = len(ctx.data.parts[task.client])
        return Update(task.client, rows, result.model, extra, {"loss": loss, "steps": steps}, next_memory)

    def _train(self, net: nn.Module, local: Local, client: int, ctx: Context) -> tuple[int, float]:
        train, rows = ctx.data.train, ctx.data.parts[client]
        descent = optimizer(net, ctx.local, ctx.rate)
        epochs = drawn_epochs(client, ctx)
        number = number_of_steps(len(rows), ctx.local, epochs)
        augmented, augment = ctx.local.augment != "none", augmentation(ctx.local.augment, train.shape)
        draws = ctx.rng("augment", ctx.round, client)
        feed = Feed(train, rows, ctx.nets.device, train.y[rows])
        total, steps = torch.zeros((), device=ctx.nets.device), 0  # read once at the end: reading waits for the device
        places = torch.arange(len(rows))
        for batch, y in feed(batches(places, ctx.local, epochs, ctx.rng("shuffle", ctx.round, client))):
            x = augment(images_of(batch), draws) if augmented else batch
            loss = self.loss(net, x, y, local)
            descent.rate = ctx.rate * ctx.local.factor(steps, number)
            descent.minimise(loss, ctx.local.clip)
            total += loss.detach()
            steps += 1
        return steps - descent.skipped(), float(total) / steps

    def loss(self, net: nn.Module, x: Batch, y: Tensor, local: Local) -> Tensor:
        """Return the sum of the terms on one batch."""
        values: Sequence[Tensor] = [term(net, x, y, local) for term in self.terms]
        return sum(values[1:], values[0])
