"""Reports: what a client sends and keeps beside its model. Each is called as report(done, ctx) once a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from fedfuse import tree
from fedfuse.context import Context
from fedfuse.local.terms import CONTROL, PREVIOUS
from fedfuse.types import FedfuseError, Groups, Snapshot, Task


@dataclass(frozen=True)
class Done:
    """A client's finished work: what it was asked, what it remembered, its model, and the steps it really took."""

    task: Task
    memory: Groups
    model: Snapshot
    steps: int


class Report(Protocol):
    """Gives what is sent and what is kept. The memory of one round is all that the next one has."""

    def __call__(self, done: Done, ctx: Context) -> tuple[Groups, Groups]: ...


@dataclass(frozen=True)
class ControlChange:
    """SCAFFOLD's option II: c_i+ = c_i - c + (x - y) / (K eta), from the steps taken. c_i+ is kept, its change sent.

    (x - y) / (K eta) is the mean of the K gradients that were followed, and those were corrected by c - c_i. With
    momentum the steps add up to more than K gradients: see `travelled`.
    """

    def __call__(self, done: Done, ctx: Context) -> tuple[Groups, Groups]:
        received = done.task.model
        if received is None:
            raise FedfuseError(f"client {done.task.client} was sent no model to train: brief it with SendControl()")
        way = 1 / (ctx.rate * travelled(done.steps, ctx.local.momentum))
        followed = tree.map_trees(lambda x, y: (x - y) * way, received.params, done.model.params)
        change = tree.subtract(followed, done.task.extra[CONTROL])
        own = done.memory.get(CONTROL)
        return {CONTROL: change}, {CONTROL: change if own is None else tree.map_trees(torch.add, own, change)}


def travelled(steps: int, momentum: float) -> float:
    """How many gradients K steps of SGD add up to: K, and with momentum the sum of (1 - beta^j) / (1 - beta), j = 1..K.

    For the gradient of the j-th last step is followed 1 + beta + ... + beta^(j-1) times.
    """
    rest = 1 - momentum
    return (steps - momentum * (1 - momentum**steps) / rest) / rest


@dataclass(frozen=True)
class PastModel:
    """The client keeps its model, for its next round to be contrasted with. It sends nothing more."""

    def __call__(self, done: Done, ctx: Context) -> tuple[Groups, Groups]:
        return {}, dict(zip(PREVIOUS, (done.model.params, done.model.buffers), strict=True))
