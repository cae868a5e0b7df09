"""Clients that keep their own model: they are never sent one, and start from where their last round ended."""

from __future__ import annotations

from fedfuse.context import Context
from fedfuse.types import Groups, Snapshot

OWN = "own/params", "own/buffers"  # in the client's memory


def own_model(client: int, memory: Groups, ctx: Context) -> Snapshot:
    """Return the client's model of its last round; in its first round the initial one, which every party can draw."""
    arch = ctx.archs[client]
    if OWN[0] not in memory:
        return ctx.nets.initial(arch, ctx.rng("init", arch))
    params, buffers = (memory[group] for group in OWN)
    return Snapshot(arch, params, buffers)


def own_model_memory(model: Snapshot) -> Groups:
    """Return the memory from which `own_model` reads this model."""
    return dict(zip(OWN, (model.params, model.buffers), strict=True))
