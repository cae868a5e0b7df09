"""SCAFFOLD's server: an aggregate that also updates the server's control variate of each architecture."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fedfuse import bounds, tree
from fedfuse.algorithms.scaffold.client import CONTROL
from fedfuse.context import Context
from fedfuse.fusion.aggregate import Aggregate, Aggregated, RunningAggregate, WeightedMean, Weights
from fedfuse.types import Extras, ServerState, Snapshot, Task, Tensors, TensorSpec, Update


def control_of(server: ServerState, arch: str) -> Tensors:
    """Return the server's control variate c of this architecture; 0 before its first client has answered."""
    return server.memory.get(f"{CONTROL}/{arch}") or tree.zeros_like(server.models[arch].params)


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
        self._settings, self._mean, self._server, self._archs = settings, mean, server, ctx.archs
        self._sizes = [len(part) if settings.weights == "examples" else 1 for part in ctx.data.parts]
        self._totals = dict.fromkeys(ctx.archs, 0)
        for arch, size in zip(ctx.archs, self._sizes, strict=True):
            self._totals[arch] += size
        self._changes: dict[str, tree.RunningMean] = {}  # by architecture

    def add(self, update: Update) -> None:
        arch = self._archs[update.client]
        share = self._sizes[update.client] / self._totals[arch]
        self._changes.setdefault(arch, tree.RunningMean()).add(update.extra[CONTROL], share)
        self._mean.add(update)

    def value(self) -> Aggregated:
        means, memory = self._mean.value()
        controls = {
            # A running mean of weight W is the weighted sum of its trees divided by W, so W times the mean is that sum.
            f"{CONTROL}/{arch}": tree.add_scaled(control_of(self._server, arch), change.weight, change.value())
            for arch, change in self._changes.items()
        }
        models = {arch: self._step(self._server.models[arch], mean) for arch, mean in means.items()}
        return Aggregated(models, {**memory, **controls})

    def _step(self, before: Snapshot, mean: Snapshot) -> Snapshot:
        if self._settings.global_lr == 1:
            return mean  # the same bits as the mean
        drift = tree.subtract(mean.params, before.params)
        return replace(mean, params=tree.add_scaled(before.params, self._settings.global_lr, drift))
