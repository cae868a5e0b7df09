"""The values that travel: a model at rest, what a client is asked, what it answers, what the server holds.

All persistent state is named groups of tensors (`Groups`), so one codec writes it to the wire, to the
checkpoint and to client memory alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

Tensors = Mapping[str, Tensor]
Groups = Mapping[str, Tensors]


class FedfuseError(Exception):
    """A mistake that its reader can correct: the message names the party, the value and the remedy."""


@dataclass(frozen=True)
class TensorSpec:
    """What a tensor from outside must look like.

    In a shape `None` stands for any length, and "n" for the number of examples that the client claims. Values outside
    `low` to `high` are refused.
    """

    shape: tuple[int | Literal["n"] | None, ...]
    dtype: torch.dtype = torch.float32
    low: float | None = None
    high: float | None = None

    @staticmethod
    def each(tensors: Tensors) -> dict[str, TensorSpec]:
        """The specs of tensors with the same names, shapes and dtypes."""
        return {name: TensorSpec(tuple(t.shape), t.dtype) for name, t in tensors.items()}

    def mismatch(self, shape: Sequence[object], dtype: object, examples: int | None = None) -> str | None:
        """Why a tensor of this shape and dtype is refused; None if it fits. Without `examples` "n" is any length."""
        lengths = [examples if length == "n" else length for length in self.shape]
        fits = len(lengths) == len(shape) and all(
            type(got) is int and (got >= 0 if want is None else got == want)
            for want, got in zip(lengths, shape, strict=True)
        )
        if fits and dtype == self.dtype:
            return None
        expected = tuple("any" if length is None else length for length in lengths)
        return f"is {dtype} {tuple(shape)}, expected {self.dtype} {expected}"


Extras = Mapping[str, Mapping[str, TensorSpec]]  # by group and name, as an update's `extra`


@dataclass(frozen=True)
class Snapshot:
    """A model at rest: its architecture by name, its parameters and, apart from them, its buffers."""

    arch: str
    params: Tensors
    buffers: Tensors = field(default_factory=dict)

    @staticmethod
    def of(arch: str, net: nn.Module) -> Snapshot:
        """A copy of what `net` holds now: later training does not reach it."""
        return Snapshot(
            arch,
            {name: p.detach().clone(memory_format=torch.contiguous_format) for name, p in net.named_parameters()},
            {name: b.detach().clone(memory_format=torch.contiguous_format) for name, b in net.named_buffers()},
        )

    def load_into(self, net: nn.Module) -> nn.Module:
        """Copy these values into `net`, in place, so that its memory layout and tensors stay its own."""
        for name, p in net.named_parameters():
            p.data.copy_(self.params[name])
        for name, b in net.named_buffers():
            b.data.copy_(self.buffers[name])
        return net


@dataclass(frozen=True)
class Task:
    """What one client is asked in one round: the model to start from, and whatever else its algorithm sends."""

    client: int
    round: int
    model: Snapshot | None
    extra: Groups = field(default_factory=dict)

    def groups(self) -> list[Tensors]:
        """All tensors that travel with it."""
        return _travelling(self.model, self.extra)


@dataclass(frozen=True)
class Update:
    """What one client answers. `memory` is what it keeps for its next round: it never travels."""

    client: int
    num_examples: int
    model: Snapshot | None
    extra: Groups = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    memory: Groups = field(default_factory=dict)

    def groups(self) -> list[Tensors]:
        """All tensors that travel with it."""
        return _travelling(self.model, self.extra)


def model_of(update: Update, needs: str) -> Snapshot:
    """The model that the client sent; where it sent none, an error that ends in who `needs` it."""
    if update.model is None:
        raise FedfuseError(f"client {update.client} sent no model, but {needs}")
    return update.model


def _travelling(model: Snapshot | None, extra: Groups) -> list[Tensors]:
    return [*([] if model is None else [model.params, model.buffers]), *extra.values()]


@dataclass(frozen=True)
class Failure:
    """A client that did not answer, and why. It costs its own update only."""

    client: int
    reason: str


@dataclass(frozen=True)
class ServerState:
    """What the server holds between rounds: one model per architecture, and its algorithm's memory."""

    round: int
    models: Mapping[str, Snapshot]
    memory: Groups = field(default_factory=dict)
