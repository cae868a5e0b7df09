"""The values that server and clients exchange and store: models, tasks, updates and the server's state.

All persistent state is named groups of tensors (`Groups`), so one codec writes messages, checkpoints and client
memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from fedfuse.errors import DamagedError as DamagedError
from fedfuse.errors import FedfuseError as FedfuseError
from fedfuse.errors import NotFiniteError as NotFiniteError

Tensors = Mapping[str, Tensor]
Groups = Mapping[str, Tensors]


@dataclass(frozen=True)
class TensorSpec:
    """The shape, dtype and range of values that a received tensor must have.

    In a shape, `None` stands for any length, and "n" for the number of examples that the client claims. Values outside
    `low` to `high` are refused.
    """

    shape: tuple[int | Literal["n"] | None, ...]
    dtype: torch.dtype = torch.float32
    low: float | None = None
    high: float | None = None

    @staticmethod
    def each(tensors: Tensors) -> dict[str, TensorSpec]:
        """Return the specs that require the names, shapes and dtypes of these tensors."""
        return {name: TensorSpec(tuple(t.shape), t.dtype) for name, t in tensors.items()}

    def mismatch(self, shape: Sequence[object], dtype: object, examples: int | None = None) -> str | None:
        """Return why a tensor of this shape and dtype is refused, or None. Without `examples`, "n" is any length."""
        lengths = [examples if length == "n" else length for length in self.shape]
        fits = len(lengths) == len(shape) and all(
            type(actual) is int and (actual >= 0 if want is None else actual == want)
            for want, actual in zip(lengths, shape, strict=True)
        )
        if fits and dtype == self.dtype:
            return None
        expected = tuple("any" if length is None else length for length in lengths)
        return f"is {dtype} {tuple(shape)}, expected {self.dtype} {expected}"


Extras = Mapping[str, Mapping[str, TensorSpec]]  # by group and name, as an update's `extra`


def host_copy(tensor: Tensor) -> Tensor:
    """Return a contiguous copy on the CPU."""
    here = tensor.detach().to("cpu")
    return here.clone(memory_format=torch.contiguous_format) if tensor.device.type == "cpu" else here.contiguous()


def saved_buffers(net: nn.Module) -> dict[str, Tensor]:
    """Return the buffers that are part of a model's state.

    The others are constants of the net, such as transformers' `position_ids`: a party that could send them could make
    a net read outside its tables.
    """
    buffers = dict(net.named_buffers())
    saved = net.state_dict(keep_vars=True).keys() if buffers else ()
    return {name: buffer for name, buffer in buffers.items() if name in saved}


@dataclass(frozen=True)
class Snapshot:
    """The values of a model: the name of its architecture, its parameters and its buffers."""

    arch: str
    params: Tensors
    buffers: Tensors = field(default_factory=dict)

    @staticmethod
    def of(arch: str, net: nn.Module) -> Snapshot:
        """Copy the current values of `net` to the CPU. Training it later does not change the copy."""
        parameters = {name: host_copy(p) for name, p in net.named_parameters()}
        return Snapshot(arch, parameters, {name: host_copy(b) for name, b in saved_buffers(net).items()})

    def load_into(self, net: nn.Module) -> nn.Module:
        """Copy these values into the tensors of `net`, in place, so that it keeps its memory layout."""
        for name, p in net.named_parameters():
            p.data.copy_(self.params[name])
        for name, b in saved_buffers(net).items():
            b.data.copy_(self.buffers[name])
        return net


T = TypeVar("T")


@dataclass(frozen=True)
class PackedModel:
    """A model as a client uploads it in fewer bits: codes and scales of some weights, and the rest as it is.

    `upload` says how the weights are packed, `of` whether they are the model's or its difference from the received one.
    """

    arch: str
    upload: str
    of: str
    params: Tensors  # those that are not packed
    buffers: Tensors
    codes: Tensors
    scales: Tensors  # by name of the weight, one number for each of its filters

    def groups(self) -> dict[str, Tensors]:
        """All tensors that are sent."""
        return self.grouped(self.params, self.buffers, self.codes, self.scales)

    @staticmethod
    def grouped(params: T, buffers: T, codes: T, scales: T) -> dict[str, T]:
        """The names of its groups in a message."""
        return {"model/params": params, "model/buffers": buffers, "packed/codes": codes, "packed/scales": scales}


@dataclass(frozen=True)
class Task:
    """What the server sends one client in one round: the model to start from, and whatever else the algorithm sends."""

    client: int
    round: int
    model: Snapshot | None
    extra: Groups = field(default_factory=dict)

    def groups(self) -> list[Tensors]:
        """All tensors that are sent."""
        return _tensor_groups(self.model, self.extra)


@dataclass(frozen=True)
class Update:
    """What one client sends back. `memory` is what the client keeps for its next round; it is never sent.

    A model in fewer bits is in `packed`, until vetting unpacks it.
    """

    client: int
    num_examples: int
    model: Snapshot | None
    extra: Groups = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    memory: Groups = field(default_factory=dict)
    packed: PackedModel | None = None

    def groups(self) -> list[Tensors]:
        """All tensors that are sent."""
        packed = [] if self.packed is None else self.packed.groups().values()
        return [*packed, *_tensor_groups(self.model, self.extra)]


def model_of(update: Update, needs: str) -> Snapshot:
    """Return the model that the client sent. If it sent none, raise an error that ends with `needs`, the reason."""
    if update.model is None:
        raise FedfuseError(f"client {update.client} sent no model, but {needs}")
    return update.model


def _tensor_groups(model: Snapshot | None, extra: Groups) -> list[Tensors]:
    return [*([] if model is None else [model.params, model.buffers]), *extra.values()]


@dataclass(frozen=True)
class Failure:
    """A client that did not answer, and why. The round goes on without its update."""

    client: int
    reason: str


@dataclass(frozen=True)
class ServerState:
    """What the server holds between rounds: one model per architecture, and its algorithm's memory."""

    round: int
    models: Mapping[str, Snapshot]
    memory: Groups = field(default_factory=dict)
