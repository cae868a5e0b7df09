"""SCAFFOLD's server: an aggregate that also keeps the server's control variate, one for each architecture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from fedfuse import tree
from fedfuse.context import Context
from fedfuse.fusion.aggregate import Aggregate, Models, WeightedMean
from fedfuse.local.terms import CONTROL
from fedfuse.types import FedfuseError, Groups, ServerState, Snapshot, Tensors, Update


def control_of(server: ServerState, arch: str) -> Tensors:
    """The server's control variate c for this architecture; 0 before its first client has answered."""
    return server.memory.get(f"{CONTROL}/{arch}") or tree.zeros_like(server.models[arch].params)


@dataclass(frozen=True)
class Controlled:
    """x := x + global_lr (mean - x) and c := c + sum of p_i dc_i, in one pass over the stream.

    p_i is 1/N or, with weights = "examples", n_i/n, over all clients of the architecture, also those that were not
    asked: so c stays the mean of all c_i, weighted as the objective is. For weights = "uniform" the sum is the
    paper's |S|/N mean(dc_i). Buffers follow the mean; there is no control variate for them.
    """

    mean: Aggregate = field(default_factory=lambda: WeightedMean("uniform"))
    weights: Literal["examples", "uniform"] = "uniform"
    global_lr: float = 1.0

    def __post_init__(self) -> None:
        if not self.global_lr > 0:
            raise FedfuseError(f"Controlled(global_lr={self.global_lr}): global_lr must be positive; 1 is the mean")

    def __call__(self, server: ServerState, updates: Iterable[Update], ctx: Context) -> tuple[Models, Groups]:
        changes: dict[str, tree.RunningMean] = {}
        means, memory = self.mean(server, self._noted(updates, changes, ctx), ctx)
        kept = dict(memory)
        for arch, change in changes.items():
            # A running mean of weight W is the sum of its trees, each by its weight, divided by W.
            kept[f"{CONTROL}/{arch}"] = tree.add_scaled(control_of(server, arch), change.weight, change.value())
        return {arch: self._moved(server.models[arch], mean) for arch, mean in means.items()}, kept

    def _noted(self, updates: Iterable[Update], changes: dict[str, tree.RunningMean], ctx: Context) -> Iterator[Update]:
        sizes = [len(part) if self.weights == "examples" else 1 for part in ctx.data.parts]
        totals = {arch: sum(n for n, a in zip(sizes, ctx.archs, strict=True) if a == arch) for arch in set(ctx.archs)}
        for update in updates:
            arch = ctx.archs[update.client]
            share = sizes[update.client] / totals[arch]
            changes.setdefault(arch, tree.RunningMean()).add(update.extra[CONTROL], share)
            yield update

    def _moved(self, before: Snapshot, mean: Snapshot) -> Snapshot:
        if self.global_lr == 1:
            return mean  # to the bit
        drift = tree.subtract(mean.params, before.params)
        return replace(mean, params=tree.add_scaled(before.params, self.global_lr, drift))
