"""What the papers' bounds on the ensemble's error consist of, measured where one machine has all data: in simulation.

Fed-ET's Theorem 1 bounds the error of the ensemble of the clients' models by the mean over clients of four terms: the
error of a client's model on its own training data, half the distance of its data to the data on which the ensemble is
used, one that shrinks with the number of its examples, and the error of the best single model for both data sets, which
cannot be measured. FedDF's Theorem 5.1 has the error of one model trained on all data instead of the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from fedfuse.algorithm import Fuse
from fedfuse.context import Context
from fedfuse.data.discrepancy import ClientDiscrepancies
from fedfuse.evaluate import evaluate
from fedfuse.facts import Discrepancy, Facts
from fedfuse.types import ServerState, Update


def fuse_and_measure(
    fuse: Fuse, server: ServerState, updates: Iterable[Update], ctx: Context
) -> tuple[ServerState, Facts]:
    """Return what the fusion returns. If the context says so, its facts also tell how far clients' data are apart."""
    if ctx.discrepancies is None:
        return fuse(server, updates, ctx)
    measured: dict[int, Discrepancy] = {}
    state, facts = fuse(server, _measuring(updates, measured, ctx.discrepancies, ctx), ctx)
    return state, replace(facts, discrepancy={str(client): measured[client] for client in sorted(measured)})


def _measuring(
    updates: Iterable[Update], measured: dict[int, Discrepancy], distances: ClientDiscrepancies, ctx: Context
) -> Iterator[Update]:
    """Yield the updates, and measure each before the fusion sees it."""
    pool, round = ctx.pool, 0 if ctx.fresh_pool is None else ctx.round
    for update in updates:
        client = update.client
        measured[client] = Discrepancy(
            pool=None if pool is None else distances.to_pool(client, pool, round),
            others=distances.to_others(client),
            own_error=_own_error(update, ctx),
        )
        yield update


def _own_error(update: Update, ctx: Context) -> float | None:
    if update.model is None:
        return None
    own = ctx.data.train.subset(ctx.data.parts[update.client])
    return 1 - evaluate(ctx.nets.load(update.model, "own data"), own).accuracy
