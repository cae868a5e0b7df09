"""The relay of decentralised fusion: it stores the clients' last predictions, and holds no model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfuse.algorithms.decentralised_logits.client import ACCURACY, LOSS, VALIDATION
from fedfuse.algorithms.decentralised_logits.topology import Topology
from fedfuse.algorithms.ds_fl.server import GLOBAL, PREDICTED, PublicRows, log_probabilities, row_problem
from fedfuse.context import Context
from fedfuse.evaluate import evaluate
from fedfuse.facts import ClientQuality, EnsembleQuality, Facts, Score, Spread
from fedfuse.fusion.diagnostics import Votes
from fedfuse.fusion.target import Target
from fedfuse.types import ServerState, Task, Tensors, Update

TABLES = "tables"  # in the server's memory: client -> log probabilities (n, C) of the last round, in half precision
EXCHANGE = "exchange"  # in the server's memory: the round of these tables
SCORES = "scores"  # in the server's memory: client -> test accuracy, test loss, validation accuracy (NaN without data)


@dataclass(frozen=True)
class SendNeighbours:
    """Sends each client the labels that its neighbours' tables and its own give, and no model.

    A table holds log probabilities: logits up to a constant for each row, which the softmax of a mean does not see.
    """

    topology: Topology
    target: Target

    def check(self, ctx: Context) -> None:
        self.target.start(1, ctx.nets.classes)

    def __call__(self, server: ServerState, client: int, ctx: Context) -> Task:
        tables = server.memory.get(TABLES, {})
        near = self.neighbours(client, tables, ctx)
        teachers = sorted([*near, *([client] if str(client) in tables else [])])
        if not teachers:
            return Task(client, ctx.round, None)
        first = tables[str(teachers[0])]
        running = self.target.start(*first.shape)
        for teacher in teachers:
            running.add(tables[str(teacher)].float())
        labels = {"probs": running.value().probs, "round": server.memory[EXCHANGE]["round"]}
        return Task(client, ctx.round, None, {GLOBAL: labels})

    def neighbours(self, client: int, tables: Tensors, ctx: Context) -> list[int]:
        """Return whose tables this client learns in this round, besides its own."""
        others = sorted(int(other) for other in tables if int(other) != client)
        return self.topology(client, others, ctx.rng("neighbours", ctx.round, client))


@dataclass(frozen=True)
class RelayPredictions:
    """Stores the predictions of this round for the next, and what clients measured of their models.

    A client is left out if a row of its probabilities does not sum to 1, or if a score that it measured is impossible:
    its model and its score are then those of its last round.
    """

    public: PublicRows

    def __call__(self, server: ServerState, updates: Iterable[Update], ctx: Context) -> tuple[ServerState, Facts]:
        _, rows = self.public(ctx.round, ctx)
        votes = Votes(len(rows), ctx.nets.classes)
        tables: dict[int, Tensor] = {}
        scores: dict[int, Tensor] = {}
        dropped: dict[int, str] = {}
        for update in updates:
            probs = update.extra[PREDICTED]["probs"]
            problem = row_problem(probs) or score_problem(update.metrics)
            if problem is not None:
                dropped[update.client] = problem
                continue
            logits = log_probabilities(probs)
            votes.add(logits)
            tables[update.client] = logits.to(torch.float16)
            measured = [update.metrics.get(name, math.nan) for name in (ACCURACY, LOSS, VALIDATION)]
            scores[update.client] = torch.tensor(measured, dtype=torch.float64)
        left_out = {str(client): reason for client, reason in sorted(dropped.items())}
        if not tables:
            facts = Facts(teachers=0, dropped=left_out, warning="no client sent predictions: the last ones stay")
            return ServerState(server.round + 1, server.models, server.memory), facts
        memory = {
            TABLES: {str(client): tables[client] for client in sorted(tables)},
            EXCHANGE: {"round": torch.tensor(ctx.round)},
            SCORES: {**server.memory.get(SCORES, {}), **{str(client): scores[client] for client in sorted(scores)}},
        }
        spread = Spread.of([float(score[0]) for score in scores.values()])
        facts = Facts(
            teachers=len(tables),
            clients=ClientQuality(spread.mean, spread.worst, spread.best),
            ensemble=EnsembleQuality(disagreement=votes.disagreement(), entropy=votes.entropy()),
            dropped=left_out,
            own={"rows": len(rows)},
        )
        return ServerState(server.round + 1, server.models, memory), facts


def score_problem(metrics: Mapping[str, float]) -> str | None:
    """Return why the scores that a client measured are impossible, or None."""
    bounds = {ACCURACY: 1.0, LOSS: math.inf, VALIDATION: 1.0}
    for name, high in bounds.items():
        value = metrics.get(name, math.nan if name != VALIDATION else 0.0)
        if not 0 <= value <= high:
            return f"it measured {name} = {value:g}, which cannot be"
    return None


@dataclass(frozen=True)
class MeanOfClients:
    """Scores each architecture by the mean over all its clients of what they measured of their present models.

    A client that has not taken part yet has the initial model, which every party can draw.
    """

    def __call__(self, server: ServerState, ctx: Context) -> tuple[Mapping[str, Score], float | None]:
        known = server.memory.get(SCORES, {})
        means: dict[str, Tensor] = {}
        for arch in ctx.reported:
            clients = [str(client) for client, own in enumerate(ctx.archs) if own == arch]
            initial = _initial_score(arch, ctx) if any(client not in known for client in clients) else torch.zeros(3)
            means[arch] = torch.stack([known.get(client, initial) for client in clients]).mean(0)
        scores = {arch: Score(float(mean[0]), float(mean[1])) for arch, mean in means.items()}
        validation = sum(float(mean[2]) for mean in means.values()) / len(means)
        return scores, None if math.isnan(validation) else validation


def _initial_score(arch: str, ctx: Context) -> Tensor:
    net = ctx.nets.load(ctx.nets.initial(arch, ctx.rng("init", arch)))
    test = evaluate(net, ctx.data.test)
    validation = evaluate(net, ctx.data.validation).accuracy if len(ctx.data.validation) else math.nan
    return torch.tensor([test.accuracy, test.loss, validation], dtype=torch.float64)
