"""Vetting: check each update against the server's own template before anything is averaged.

A refused update is left out and recorded with its reason; the run goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedfuse import packing, tree
from fedfuse.context import Context
from fedfuse.local import uploads
from fedfuse.records.record import ClientRecord
from fedfuse.types import Extras, Failure, PackedModel, ServerState, Snapshot, Tensors, TensorSpec, Update


class QuorumNotMet(Exception):
    """Too few updates were accepted. The round leaves the model unchanged."""


NOT_NEGATIVE = ("running_var", "num_batches_tracked")  # buffers of batch norm


class _Refused(Exception):
    pass


@dataclass(frozen=True)
class Vetting:
    """The rules. `max_examples` bounds the examples that a client may claim; `max_norm` how far its model may move."""

    quorum: int = 1
    max_examples: int = 10_000_000
    max_norm: float | None = None

    def check(self, update: Update, server: ServerState, ctx: Context, extras: Extras) -> None:
        """Raise `_Refused` with the reason if the update is not acceptable."""
        n = update.num_examples
        if type(n) is not int or not 1 <= n <= self.max_examples:
            raise _Refused(f"claims {n!r} examples; a whole number from 1 to {self.max_examples:,} is accepted")
        for name, value in update.metrics.items():
            if not math.isfinite(value):
                raise _Refused(f"sent the metric {name} = {value}, which is not finite")
        _same_names("groups", update.extra, extras)
        for group, expected in extras.items():
            _same_names(f"tensors of {group}", update.extra[group], expected)
            for name, spec in expected.items():
                _check_tensor(update.extra[group][name], spec, f"{group}/{name}", n)
        if update.model is not None:
            if ctx.archs[update.client] not in server.models:
                raise _Refused("sent a model, but the server has none of its architecture")
            self._check_model(update.model, server.models[ctx.archs[update.client]])

    def _check_model(self, model: Snapshot, template: Snapshot) -> None:
        if model.arch != template.arch:
            raise _Refused(f"sent a {model.arch} where its architecture is {template.arch}")
        _check_tensors(model.params, template.params)
        _check_tensors(model.buffers, template.buffers)
        _finite(model.params, "parameter")
        _finite(model.buffers, "buffer")
        for name, buffer in model.buffers.items():
            if name.endswith(NOT_NEGATIVE) and bool((buffer < 0).any()):
                raise _Refused(f"buffer {name} is negative")
        if self.max_norm is not None:
            distance = math.sqrt(tree.squared_distance(model.params, template.params))
            if distance > self.max_norm:
                raise _Refused(f"moved by {distance:.4g}, more than the bound of {self.max_norm:g}")


def _check_tensors(tensors: Tensors, template: Tensors) -> None:
    _same_names("tensor names", tensors, template)
    for name, spec in TensorSpec.each(template).items():
        if problem := spec.mismatch(tuple(tensors[name].shape), tensors[name].dtype):
            raise _Refused(f"{name} {problem}")


def _same_names(what: str, names: Collection[str], expected: Collection[str]) -> None:
    if set(names) != set(expected):
        missing, extra = sorted(set(expected) - set(names)), sorted(set(names) - set(expected))
        raise _Refused(f"{what} differ: missing {missing[:3]}, unexpected {extra[:3]}")


def _check_tensor(tensor: Tensor, spec: TensorSpec, what: str, examples: int) -> None:
    """Check shape, dtype and values against the spec. `examples` is the number that the client claims."""
    if problem := spec.mismatch(tuple(tensor.shape), tensor.dtype, examples):
        raise _Refused(f"{what} {problem}")
    _finite({what: tensor}, "extra")
    for bound, outside in ((spec.low, torch.lt), (spec.high, torch.gt)):
        if bound is not None and bool(outside(tensor, bound).any()):
            raise _Refused(f"{what} holds values {'below' if outside is torch.lt else 'above'} {bound:g}")


def _finite(tensors: Tensors, what: str) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tree.all_finite(tensor):
            raise _Refused(f"{what} {name} is not finite")


def unpacked(update: Update, server: ServerState, received: Snapshot | None, ctx: Context) -> Update:
    """Return the update with its model unpacked. Raise `_Refused` unless it is packed as this client's are.

    Shapes, dtypes and values are checked against the server's template before anything is allocated.
    """
    precision, packed = ctx.precision(update.client), update.packed
    own = uploads.describe(precision.upload, uploads.upload_of(precision, ctx))
    if packed is None:
        if update.model is not None and precision.upload != packing.FULL:
            raise _Refused(f"sent its model as it is, where {own} are expected")
        return update
    if precision.upload == packing.FULL:
        raise _Refused("sent a packed model, where float32 is expected")
    if (sent := uploads.describe(packed.upload, packed.of)) != own:
        raise _Refused(f"sent {sent}, where {own} are expected")
    template = server.models.get(ctx.archs[update.client])
    specs = None if template is None else uploads.expected(template, update.client, ctx)
    if template is None or specs is None:
        raise _Refused("sent a model, but the server has none of its architecture")
    _check_packed(packed, template, specs, precision.upload)
    base = (received or template).params if packed.of == "difference" else {}
    return replace(update, model=packing.unpacked(packed, template, base, precision.upload), packed=None)


def _check_packed(packed: PackedModel, template: Snapshot, specs: Extras, upload: packing.Upload) -> None:
    if packed.arch != template.arch:
        raise _Refused(f"sent a {packed.arch} where its architecture is {template.arch}")
    groups = packed.groups()
    for group, expected in specs.items():
        _same_names(f"tensors of {group}", groups[group], expected)
        for name, spec in expected.items():
            _check_tensor(groups[group][name], spec, f"{group}/{name}", 0)
    if problem := packing.problem(packed, template, upload):
        raise _Refused(f"packed/codes/{problem}")


@dataclass
class VettedUpdates:
    """The stream of accepted updates. It also records refusals, and how much was sent, including by refused clients.

    If the stream ends below the quorum, it raises `QuorumNotMet`, so that no fusion goes on with too few updates.
    """

    answers: Iterable[Update | Failure]
    cohort: Collection[int]
    server: ServerState
    rules: Vetting
    ctx: Context
    expect: Callable[[int], Extras] = lambda client: {}
    sent_model: Collection[int] = ()  # clients that were sent a model, and so must answer with one
    rejected: dict[int, str] = field(default_factory=dict)
    clients: dict[int, ClientRecord] = field(default_factory=dict)  # the accepted ones
    params_up: int = 0
    bytes_up: int = 0
    received: Mapping[int, Snapshot] = field(default_factory=dict)  # what clients were sent, if they send differences

    def __post_init__(self) -> None:
        self._members = frozenset(self.cohort)

    def __iter__(self) -> Iterator[Update]:
        clients = iter(self.cohort)  # engines answer in the order of the cohort
        for answer in self.answers:
            client = next(clients, answer.client)
            if isinstance(answer, Failure):
                self.rejected.setdefault(client, answer.reason)
                continue
            try:
                update = self._accepted(answer, client)
            except _Refused as refusal:
                self.rejected.setdefault(client, str(refusal))
                continue
            yield update
        if len(self.clients) < self.rules.quorum:
            raise QuorumNotMet(f"{len(self.clients)} of {len(self.cohort)} clients, the quorum is {self.rules.quorum}")

    def _accepted(self, update: Update, client: int) -> Update:
        """Return the update with its model unpacked, or raise `_Refused`."""
        self.params_up += self._parameters(update, client)
        self.bytes_up += sum(tree.nbytes(g) for g in update.groups())
        if client not in self._members:
            raise _Refused("was not asked in this round")
        if update.client != client:
            raise _Refused(f"answered as client {update.client}")
        if client in self.clients or client in self.rejected:
            raise _Refused("sent a second update in one round")
        if update.model is None and update.packed is None and update.client in self.sent_model:
            raise _Refused("was sent a model and answered without one")
        update = unpacked(update, self.server, self.received.get(client), self.ctx)
        self.rules.check(update, self.server, self.ctx, self.expect(update.client))
        self.clients[update.client] = ClientRecord(update.num_examples, self._distance(update))
        return update

    def _parameters(self, update: Update, client: int) -> int:
        """Return the number of values that were sent; a packed model counts as the server's."""
        if update.packed is not None and client in self._members:
            update = replace(update, model=self.server.models.get(self.ctx.archs[client]), packed=None)
        return sum(tree.count(group) for group in update.groups())

    def _distance(self, update: Update) -> float | None:
        """Return how far its model moved from the server's; None if either of them is missing."""
        template = self.server.models.get(self.ctx.archs[update.client])
        if update.model is None or template is None:
            return None
        return math.sqrt(tree.squared_distance(update.model.params, template.params))
