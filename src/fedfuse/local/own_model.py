"""A client that keeps its model: it is never sent one, and begins where its last round ended."""

from __future__ import annotations

from fedfuse.context import Context
from fedfuse.types import Groups, Snapshot

OWN = "own/params", "own/buffers"  # in the client's memory


def own_model(client: int, memory: Groups, ctx: Context) -> Snapshot:
    """The client's model of its last round; in its first the initial one of its architecture, which all can draw."""
    arch = ctx.archs[client]
    if OWN[0] not in memory:
        return ctx.nets.initial(arch, ctx.rng("init", arch))
    params, buffers = (memory[group] for group in OWN)
    return Snapshot(arch, params, buffers)


def own_model_memory(model: Snapshot) -> Groups:
    """The memory in which `own_model` finds this model."""
    return dict(zip(OWN, (model.params, model.buffers), strict=True))
