"""Aggregates: a stream of updates, read once and one at a time, -> one model per architecture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import torch

from fedfuse import tree
from fedfuse.algorithm import Facts
from fedfuse.context import Context
from fedfuse.fusion.batch_norm import recompute_batch_norm
from fedfuse.types import FedfuseError, Groups, ServerState, Snapshot, Update

Models = Mapping[str, Snapshot]


class Aggregate(Protocol):
    """Gives the models of the architectures that took part, and what the server is to remember."""

    def __call__(self, server: ServerState, updates: Iterable[Update], ctx: Context) -> tuple[Models, Groups]: ...


@dataclass(frozen=True)
class WeightedMean:
    """The mean of the client models of each architecture, weighted by their number of examples.

    Batch-norm statistics have a policy of their own. `mean` averages them like parameters; `keep` leaves the
    server's; `recalibrate` measures them on the pool with the averaged parameters.
    """

    weights: Literal["examples", "uniform"] = "examples"
    buffers: Literal["mean", "keep", "recalibrate"] = "mean"

    def __call__(self, server: ServerState, updates: Iterable[Update], ctx: Context) -> tuple[Models, Groups]:
        running = tree.RunningSnapshots()
        for update in updates:
            if update.model is None:
                raise FedfuseError(f"client {update.client} sent no model, but WeightedMean averages models")
            running.add(update.model, update.num_examples if self.weights == "examples" else 1.0)
        means = running.value()
        return {arch: self._with_buffers(mean, server, ctx) for arch, mean in means.items()}, server.memory

    def _with_buffers(self, mean: Snapshot, server: ServerState, ctx: Context) -> Snapshot:
        if self.buffers == "keep":
            return replace(mean, buffers=tree.map_trees(torch.clone, server.models[mean.arch].buffers))
        if self.buffers == "recalibrate":
            return recalibrated(mean, ctx)
        return mean


def recalibrated(snapshot: Snapshot, ctx: Context, batch_size: int = 256) -> Snapshot:
    """The snapshot with its batch-norm statistics measured afresh on the pool, as a mean over its batches."""
    pool = ctx.pool
    if pool is None:
        raise FedfuseError("buffers = 'recalibrate' measures batch-norm statistics on the pool: set data.pool")
    net = ctx.nets.load(snapshot)
    layers = ctx.rng("recalibrate", ctx.round, snapshot.arch)
    recompute_batch_norm(net, pool, torch.arange(len(pool)), batch_size, layers)
    return Snapshot.of(snapshot.arch, net)


@dataclass(frozen=True)
class Momentum:
    """Server momentum: v := beta v + (x - mean), x := x - v, for the parameters; buffers follow the mean.

    x - v is computed as mean - beta v_old, the same number: so beta = 0 is the mean itself, bit for bit.
    """

    beta: float = 0.9
    mean: Aggregate = field(default_factory=WeightedMean)

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise FedfuseError(f"Momentum(beta={self.beta}): beta must be in [0, 1); 0 is FedAvg")

    def __call__(self, server: ServerState, updates: Iterable[Update], ctx: Context) -> tuple[Models, Groups]:
        means, memory = self.mean(server, updates, ctx)
        moved: dict[str, Snapshot] = {}
        kept = dict(memory)
        for arch, mean in means.items():
            velocity = memory.get(f"velocity/{arch}") or tree.zeros_like(mean.params)
            drift = tree.subtract(server.models[arch].params, mean.params)
            kept[f"velocity/{arch}"] = tree.add_scaled(drift, self.beta, velocity)
            moved[arch] = replace(mean, params=tree.add_scaled(mean.params, -self.beta, velocity))
        return moved, kept


@dataclass(frozen=True)
class Averaged:
    """Fusion by an aggregate alone. An architecture without a client this round keeps its model."""

    aggregate: Aggregate = field(default_factory=WeightedMean)

    def __call__(self, server: ServerState, updates: Iterable[Update], ctx: Context) -> tuple[ServerState, Facts]:
        models, memory = self.aggregate(server, updates, ctx)
        return ServerState(server.round + 1, {**server.models, **models}, memory), {}
