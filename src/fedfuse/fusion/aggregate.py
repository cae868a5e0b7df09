"""Aggregates: the client models of a round -> one model per architecture.

An aggregate starts from the server's state, takes one update at a time, and gives its value at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Protocol

import torch

from fedfuse import bounds, tree
from fedfuse.context import Context
from fedfuse.data.examples import Examples
from fedfuse.facts import Facts
from fedfuse.fusion.admission import Admission, AdmitAll
from fedfuse.fusion.batch_norm import recompute_batch_norm
from fedfuse.types import FedfuseError, Groups, ServerState, Snapshot, Tensors, Update, model_of

Models = Mapping[str, Snapshot]  # by architecture
Weights = Literal["examples", "uniform"]
BufferPolicy = Literal["mean", "keep", "recalibrate", "last"]


class Aggregated(NamedTuple):
    """The models of the architectures that took part, and the server's new memory."""

    models: Models
    memory: Groups


class RunningAggregate(Protocol):
    """An aggregate of one round."""

    def add(self, update: Update) -> None:
        """Add one client's update. The update is not kept."""

    def value(self) -> Aggregated: ...


class Aggregate(Protocol):
    def start(self, server: ServerState, ctx: Context) -> RunningAggregate: ...


@dataclass(frozen=True)
class WeightedMean:
    """The mean of the client models of each architecture, weighted by their number of examples.

    `buffers` is the policy for batch-norm statistics: `mean` averages them like parameters, `keep` leaves the server's,
    `recalibrate` measures them on the pool with the averaged parameters, and `last` takes those of the last client, as
    FedDF's released FedAvg does: the only policy that depends on the order of the clients.
    """

    weights: Weights = "examples"
    buffers: BufferPolicy = "mean"

    def check(self, ctx: Context) -> None:
        if self.buffers == "recalibrate":
            _pool_for_buffers(ctx)

    def start(self, server: ServerState, ctx: Context) -> RunningAggregate:
        return _RunningWeightedMean(self, server, ctx)


class _RunningWeightedMean:
    def __init__(self, settings: WeightedMean, server: ServerState, ctx: Context) -> None:
        self._settings, self._server, self._ctx = settings, server, ctx
        self._means = tree.RunningSnapshots()
        self._last: dict[str, Tensors] = {}  # buffers by architecture, where the policy needs them

    def add(self, update: Update) -> None:
        weight = update.num_examples if self._settings.weights == "examples" else 1.0
        model = model_of(update, "WeightedMean averages models")
        self._means.add(model, weight)
        if self._settings.buffers == "last":
            self._last[model.arch] = tree.map_trees(torch.clone, model.buffers)

    def value(self) -> Aggregated:
        means = self._means.value()
        return Aggregated({arch: self._with_buffers(mean) for arch, mean in means.items()}, self._server.memory)

    def _with_buffers(self, model: Snapshot) -> Snapshot:
        """Return the model with batch-norm statistics by the policy."""
        policy = self._settings.buffers
        if policy == "keep":
            return replace(model, buffers=tree.map_trees(torch.clone, self._server.models[model.arch].buffers))
        if policy == "last":
            return replace(model, buffers=self._last[model.arch])
        return recalibrate(model, self._ctx) if policy == "recalibrate" else model


def recalibrate(model: Snapshot, ctx: Context, batch_size: int = 256) -> Snapshot:
    """Return the model with batch-norm statistics measured on the pool, as a mean over its batches."""
    pool = _pool_for_buffers(ctx)
    net = ctx.nets.load(model)
    layers = ctx.rng("recalibrate", ctx.round, model.arch)
    recompute_batch_norm(net, pool, torch.arange(len(pool)), batch_size, layers)
    return Snapshot.of(model.arch, net)


def _pool_for_buffers(ctx: Context) -> Examples:
    pool = ctx.at(max(1, ctx.round)).pool
    if pool is None:
        raise FedfuseError("buffers = 'recalibrate' measures batch-norm statistics on the pool: set data.pool")
    return pool


@dataclass(frozen=True)
class Momentum:
    """Server momentum: v := beta v + (x - mean), x := x - v, for the parameters; buffers follow the mean.

    x - v is computed as mean - beta v_old, which is the same number: so beta = 0 gives the mean itself, bit for bit.
    """

    beta: float = 0.9
    mean: Aggregate = field(default_factory=WeightedMean)

    def __post_init__(self) -> None:
        bounds.below_one(self, "0 is FedAvg", beta=self.beta)

    def start(self, server: ServerState, ctx: Context) -> RunningAggregate:
        return _RunningMomentum(self.beta, self.mean.start(server, ctx), server)


class _RunningMomentum:
    def __init__(self, beta: float, mean: RunningAggregate, server: ServerState) -> None:
        self._beta, self._mean, self._server = beta, mean, server

    def add(self, update: Update) -> None:
        self._mean.add(update)

    def value(self) -> Aggregated:
        means, memory = self._mean.value()
        models: dict[str, Snapshot] = {}
        velocities: dict[str, dict[str, torch.Tensor]] = {}
        for arch, mean in means.items():
            velocity = memory.get(f"velocity/{arch}") or tree.zeros_like(mean.params)
            drift = tree.subtract(self._server.models[arch].params, mean.params)
            velocities[f"velocity/{arch}"] = tree.add_scaled(drift, self._beta, velocity)
            models[arch] = replace(mean, params=tree.add_scaled(mean.params, -self._beta, velocity))
        return Aggregated(models, {**memory, **velocities})


@dataclass(frozen=True)
class Averaged:
    """Fusion by an aggregate alone. An architecture without a client this round keeps its model."""

    aggregate: Aggregate = field(default_factory=WeightedMean)
    admission: Admission = field(default_factory=AdmitAll)

    def __call__(self, server: ServerState, updates: Iterable[Update], ctx: Context) -> tuple[ServerState, Facts]:
        running = self.aggregate.start(server, ctx)
        dropped: dict[int, str] = {}
        admitted = 0
        for update, reason in self.admission(updates, ctx):
            if reason is not None:
                dropped[update.client] = reason
                continue
            running.add(update)
            admitted += 1
        models, memory = running.value()
        warning = "every client was dropped: the server keeps the previous models" if dropped and not admitted else None
        facts = Facts(dropped={str(client): reason for client, reason in sorted(dropped.items())}, warning=warning)
        return ServerState(server.round + 1, {**server.models, **models}, memory), facts
