"""What a server accepts. Each update is checked against the server's own template before anything is averaged.

A refused update costs its client, never the run: it is recorded by client and reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedfuse import tree
from fedfuse.context import Context
from fedfuse.records.record import ClientRecord
from fedfuse.types import Extras, Failure, ServerState, Snapshot, Tensors, TensorSpec, Update


class QuorumNotMet(Exception):
    """Too few clients answered acceptably: the round leaves the model as it was."""


class _Refused(Exception):
    pass


@dataclass(frozen=True)
class Vetting:
    """The rules. `max_examples` caps what a client may claim to weigh; `max_norm` how far it may have moved."""

    quorum: int = 1
    max_examples: int = 10_000_000
    max_norm: float | None = None

    def check(self, update: Update, server: ServerState, ctx: Context, extras: Extras) -> None:
        """Raise `_Refused` with the reason, or accept."""
        n = update.num_examples
        if type(n) is not int or not 1 <= n <= self.max_examples:
            raise _Refused(f"claims {n!r} examples; a whole number from 1 to {self.max_examples:,} is accepted")
        _same_names("groups", update.extra, extras)
        for group, expected in extras.items():
            _same_names(f"tensors of {group}", update.extra[group], expected)
            for name, spec in expected.items():
                _check_tensor(update.extra[group][name], spec, f"{group}/{name}", n)
        if update.model is not None:
            if ctx.archs[update.client] not in server.models:
                raise _Refused("sent a model, but the server has none to hold it against")
            self._check_model(update.model, server.models[ctx.archs[update.client]])

    def _check_model(self, model: Snapshot, template: Snapshot) -> None:
        if model.arch != template.arch:
            raise _Refused(f"sent a {model.arch} where its architecture is {template.arch}")
        _matches(model.params, template.params)
        _matches(model.buffers, template.buffers)
        _finite(model.params, "parameter")
        _finite(model.buffers, "buffer")
        for name, buffer in model.buffers.items():
            if name.endswith("running_var") and bool((buffer < 0).any()):
                raise _Refused(f"buffer {name} holds a negative variance")
        if self.max_norm is not None:
            moved = math.sqrt(tree.squared_distance(model.params, template.params))
            if moved > self.max_norm:
                raise _Refused(f"moved by {moved:.4g}, more than the bound of {self.max_norm:g}")


def _matches(sent: Tensors, template: Tensors) -> None:
    _same_names("tensor names", sent, template)
    for name, spec in TensorSpec.each(template).items():
        if problem := spec.mismatch(tuple(sent[name].shape), sent[name].dtype):
            raise _Refused(f"{name} {problem}")


def _same_names(what: str, sent: Collection[str], expected: Collection[str]) -> None:
    if set(sent) != set(expected):
        missing, extra = sorted(set(expected) - set(sent)), sorted(set(sent) - set(expected))
        raise _Refused(f"{what} differ: missing {missing[:3]}, unexpected {extra[:3]}")


def _check_tensor(tensor: Tensor, spec: TensorSpec, what: str, examples: int) -> None:
    """Shape, dtype and values are as the spec says; `examples` is what the client claims to have."""
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


@dataclass
class VettedUpdates:
    """The stream of accepted updates; beside it who was refused, and how much was sent, also by those refused.

    When the stream ends below the quorum it raises `QuorumNotMet`, so that no fusion goes on with too few answers.
    """

    answers: Iterable[Update | Failure]
    cohort: Collection[int]
    server: ServerState
    rules: Vetting
    ctx: Context
    expect: Callable[[int], Extras] = lambda client: {}
    sent_model: Collection[int] = ()  # who was sent a model, and so must answer with one
    rejected: dict[int, str] = field(default_factory=dict)
    clients: dict[int, ClientRecord] = field(default_factory=dict)  # those accepted
    params_up: int = 0
    bytes_up: int = 0

    def __post_init__(self) -> None:
        self._asked = frozenset(self.cohort)

    def __iter__(self) -> Iterator[Update]:
        for answer in self.answers:
            if isinstance(answer, Failure):
                self.rejected.setdefault(answer.client, answer.reason)
                continue
            try:
                self._accept(answer)
            except _Refused as refusal:
                self.rejected.setdefault(answer.client, str(refusal))
                continue
            yield answer
        if len(self.clients) < self.rules.quorum:
            raise QuorumNotMet(f"{len(self.clients)} of {len(self.cohort)} clients, the quorum is {self.rules.quorum}")

    def _accept(self, update: Update) -> None:
        groups = update.groups()
        self.params_up += sum(tree.count(g) for g in groups)
        self.bytes_up += sum(tree.nbytes(g) for g in groups)
        if update.client not in self._asked:
            raise _Refused("was not asked in this round")
        if update.client in self.clients or update.client in self.rejected:
            raise _Refused("sent a second update in one round")
        if update.model is None and update.client in self.sent_model:
            raise _Refused("was sent a model and answered without one")
        self.rules.check(update, self.server, self.ctx, self.expect(update.client))
        self.clients[update.client] = ClientRecord(update.num_examples, self._distance(update))

    def _distance(self, update: Update) -> float | None:
        """How far its model moved from the server's, where both are models of the same parameters."""
        template = self.server.models.get(self.ctx.archs[update.client])
        if update.model is None or template is None:
            return None
        return math.sqrt(tree.squared_distance(update.model.params, template.params))
