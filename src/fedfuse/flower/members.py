"""The clients of a round: those of the experiment, and those that have joined since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fedfuse.context import Context


def with_members(ctx: Context, joined: int, capabilities: Mapping[int, float], examples: Mapping[int, int]) -> Context:
    """Return the context with `joined` more clients, and with as many examples for each client as it has stated.

    A client that has stated none counts as in the experiment's partition; one that has joined, as the mean client.
    """
    clients = len(ctx.archs)
    like = [*range(clients), *(_like(k, clients, capabilities) for k in range(clients, clients + joined))]
    known = {**dict(enumerate(ctx.data.sizes)), **{k: n for k, n in examples.items() if k < len(like)}}
    mean = max(1, round(sum(known.values()) / len(known)))
    return replace(
        ctx,
        archs=tuple(ctx.archs[k] for k in like),
        precisions=tuple(ctx.precisions[k] for k in like) if ctx.precisions else (),
        examples=tuple(known.get(k, mean) for k in range(len(like))),
    )


def _like(client: int, clients: int, capabilities: Mapping[int, float]) -> int:
    """Return the client of the experiment whose architecture and precision a client that has joined gets too.

    By capability, if all state one: the most capable that is not above it, else the least capable. Otherwise the
    assignment of the experiment is repeated, which keeps its proportions.
    """
    if client not in capabilities or not all(k in capabilities for k in range(clients)):
        return client % clients
    ranked = sorted(range(clients), key=lambda k: capabilities[k])
    return [ranked[0], *(k for k in ranked if capabilities[k] <= capabilities[client])][-1]
