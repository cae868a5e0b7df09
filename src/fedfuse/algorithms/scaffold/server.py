"""SCAFFOLD's server: an aggregate that also updates the server's control variate of each architecture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from fedfuse import bounds, tree
from fedfuse.algorithms.scaffold.client import CONTROL
from fedfuse.context import Context
from fedfuse.fusion.aggregate import Aggregate, Aggregated, RunningAggregate, WeightedMean, Weights
from fedfuse.types import Extras, ServerState, Snapshot, Task, Tensors, TensorSpec, Update

MEMBERS = "members"  # in the server's memory, once clients have joined: how many clients c is the mean over


def control_of(server: ServerState, arch: str) -> Tensors:
    """Return the server's control variate c of this architecture; 0 before its first client has answered."""
    return server.memory.get(f"{CONTROL}/{arch}") or tree.zeros_like(server.models[arch].params)


def with_newcomers(control: Tensors, server: ServerState, sizes: Sequence[int], arch: str, ctx: Context) -> Tensors:
    """Return c as the mean over all clients, if some of this architecture have joined: their c_i are 0 so far."""
    before = int(server.memory[MEMBERS]["count"]) if MEMBERS in server.memory else len(ctx.data.parts)
    if before >= len(ctx.archs):
        return control
    weights = [size if own == arch else 0 for size, own in zip(sizes, ctx.archs, strict=True)]
    share = sum(weights[:before]) / max(1, sum(weights))
    return tree.map_trees(lambda tensor: tensor * share, control)


def send_control(server: ServerState, client: int, ctx: Context) -> Task:
    """Send each client the server's model and control variate of its own architecture."""
    arch = ctx.archs[client]
    return Task(client, ctx.round, server.models[arch], {CONTROL: control_of(server, arch)})


def expect_control_change(server: ServerState, client: int, ctx: Context) -> Extras:
    """Besides its model, a client sends the change of its control variate, which has the shapes of the parameters."""
    return {CONTROL: TensorSpec.each(server.models[ctx.archs[client]].params)}


@dataclass(frozen=True)
class Controlled:
    """x := x + global_lr (mean - x) and c := c + sum of p_i dc_i.

    p_i is 1/N or, with weights = "examples", n_i/n, over all clients of the architecture, including those outside the
    cohort: so c stays the mean of all c_i, weighted as in the objective. For weights = "uniform" the sum is the paper's
    |S|/N mean(dc_i). Buffers follow the mean; there is no control variate for them.
    """

    mean: Aggregate = field(default_factory=lambda: WeightedMean("uniform"))
    weights: Weights = "uniform"
    global_lr: float = 1.0

    def __post_init__(self) -> None:
        bounds.positive(self, "1 is the mean", global_lr=self.global_lr)

    def start(self, server: ServerState, ctx: Context) -> RunningAggregate:
        return _RunningControlled(self, self.mean.start(server, ctx), server, ctx)


class _RunningControlled:
    def __init__(self, settings: Controlled, mean: RunningAggregate, server: ServerState, ctx: Context) -> None:
        self._settings, self._mean, self._server, self._ctx = settings, mean, server, ctx
        self._sizes = [size if settings.weights == "examples" else 1 for size in ctx.sizes]
        self._totals = dict.fromkeys(ctx.archs, 0)
        for arch, size in zip(ctx.archs, self._sizes, strict=True):
            self._totals[arch] += size
        self._changes: dict[str, tree.RunningMean] = {}  # by architecture

    def add(self, update: Update) -> None:
        arch = self._ctx.archs[update.client]
        share = self._sizes[update.client] / self._totals[arch]
        self._changes.setdefault(arch, tree.RunningMean()).add(update.extra[CONTROL], share)
        self._mean.add(update)

    def value(self) -> Aggregated:
        means, memory = self._mean.value()
        controls: dict[str, Tensors] = {}
        for arch in self._server.models:
            if arch in self._changes or f"{CONTROL}/{arch}" in self._server.memory:
                controls[f"{CONTROL}/{arch}"] = self._control(arch)
        if len(self._ctx.archs) > len(self._ctx.data.parts):
            controls[MEMBERS] = {"count": torch.tensor(len(self._ctx.archs))}
        models = {arch: self._step(self._server.models[arch], mean) for arch, mean in means.items()}
        return Aggregated(models, {**memory, **controls})

    def _control(self, arch: str) -> Tensors:
        control = with_newcomers(control_of(self._server, arch), self._server, self._sizes, arch, self._ctx)
        if (change := self._changes.get(arch)) is None:
            return control
        # A running mean of weight W is the weighted sum of its trees divided by W, so W times the mean is that sum.
        return tree.add_scaled(control, change.weight, change.value())

    def _step(self, before: Snapshot, mean: Snapshot) -> Snapshot:
        if self._settings.global_lr == 1:
            return mean  # the same bits as the mean
        drift = tree.subtract(mean.params, before.params)
        return replace(mean, params=tree.add_scaled(before.params, self._settings.global_lr, drift))
