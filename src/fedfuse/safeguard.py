"""What protects a run from clients that pass vetting: finite outputs of fused models, and the names of suspects."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from fedfuse import tree
from fedfuse.context import Context
from fedfuse.data.examples import Examples
from fedfuse.facts import Facts, divergence
from fedfuse.predict import predict
from fedfuse.records.record import ClientRecord
from fedfuse.types import NotFiniteError, ServerState

ROWS = 128  # inputs on which a fused model's outputs must be finite
FAR = 5.0  # times the median distance
ALARMING = 100.0  # times the median distance: a warning even if all else went well
HALF = 0.5
MOST = 5  # suspects that are named


def check_outputs(state: ServerState, ctx: Context) -> None:
    """Raise a NotFiniteError if a model of the server, or one of its outputs, is not finite."""
    inputs = _inputs(ctx)
    for arch, model in state.models.items():
        if not all(tree.all_finite(t) for t in (*model.params.values(), *model.buffers.values())):
            raise NotFiniteError(f"the fused model {arch} is not finite")
        if not tree.all_finite(predict(ctx.nets.load(model), inputs, torch.arange(min(ROWS, len(inputs))))):
            raise NotFiniteError(f"the fused model {arch} gives outputs that are not finite")


def _inputs(ctx: Context) -> Examples:
    """Return validation data, else the pool, else noise: test data decides nothing."""
    data = ctx.data.validation if len(ctx.data.validation) else ctx.pool
    if data is not None:
        return data
    train = ctx.data.train
    if not isinstance(train.x, Tensor):
        return train.subset(torch.zeros(1, dtype=torch.int64))  # there is no noise of token ids
    x = torch.randn(ROWS, *train.shape, generator=ctx.rng("finite outputs", ctx.round))
    zeros = torch.zeros_like(train.mean)
    return Examples(x, torch.zeros(ROWS, dtype=torch.int64), train.classes, zeros, zeros + 1)


def with_warnings(facts: Facts, clients: Mapping[int, ClientRecord]) -> Facts:
    """Name the suspects if a distillation diverged, and any client whose model moved out of all proportion."""
    if divergence(facts.students):
        return replace(facts, warning=f"{facts.warning}; {suspects(clients, facts.agreement)}")
    if far := _far(clients, ALARMING):
        return replace(facts, warning="; ".join(filter(None, [facts.warning, f"suspected: {', '.join(far[:MOST])}"])))
    return facts


def suspects(clients: Mapping[int, ClientRecord], agreement: Mapping[str, float]) -> str:
    """Name the accepted clients that stand out: by distance, or else by their agreement with the ensemble."""
    names = _far(clients, FAR) or _alone(agreement)
    return f"suspected: {', '.join(names[:MOST])}" if names else "no client stands out by distance or agreement"


def _far(clients: Mapping[int, ClientRecord], times: float) -> list[str]:
    distances = {client: record.distance for client, record in clients.items() if record.distance is not None}
    usual = statistics.median(distances.values()) if distances else 0.0
    return [
        f"client {client} (moved {distance:.3g}, the median client {usual:.3g})"
        for client, distance in sorted(distances.items(), key=lambda item: -item[1])
        if distance > times * usual
    ]


def _alone(agreement: Mapping[str, float]) -> list[str]:
    """Name those who agree with the ensemble far less than the median client, or far more where most do not."""
    common = statistics.median(agreement.values()) if agreement else 0.0
    most_agree = common >= HALF
    return [
        f"client {client} (agrees with the ensemble on {100 * share:.0f} %, the median client on {100 * common:.0f} %)"
        for client, share in sorted(agreement.items(), key=lambda item: item[1], reverse=not most_agree)
        if (share < HALF * common if most_agree else 1 - share < HALF * (1 - common))
    ]
