"""DS-FL's server, which receives probabilities and no weights.

It defines which public examples a round uses, what is sent about them, and how probabilities become soft labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedfuse.context import Context
from fedfuse.data.federation import Federation
from fedfuse.facts import EnsembleQuality, Facts, FirstAndLast, Student, divergence
from fedfuse.fusion.diagnostics import Votes
from fedfuse.fusion.distillers import Distiller, refuse_keep_start
from fedfuse.fusion.labelling import Labelling, SoftLabels
from fedfuse.fusion.target import Target, entropy
from fedfuse.predict import Pool
from fedfuse.types import Extras, FedfuseError, NotFiniteError, ServerState, Snapshot, Task, TensorSpec, Update

GLOBAL = "global"  # in the server's memory and in a task: the soft labels, and the round whose examples they label
PREDICTED = "predicted"  # in an update
NEAR = 1e-3  # how far from 1 the sum of a row's probabilities may be


@dataclass(frozen=True)
class PublicRows:
    """The public examples of a round. They are drawn by the round's number, so everyone knows them; none are sent."""

    rows: int

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise FedfuseError(f"rows = {self.rows}: give the number of public examples in a round, 1 or more")

    def __call__(self, round: int, ctx: Context) -> tuple[Pool, Tensor]:
        """Return the pool, and the round's row numbers (n,) in it."""
        pool = ctx.at(round).pool
        if pool is None:
            raise FedfuseError("clients exchange predictions on public, unlabeled data: set data.pool")
        return pool, torch.randperm(len(pool), generator=ctx.rng("public rows", round))[: self.rows]


@dataclass(frozen=True)
class EnoughRows:
    """Refuses an experiment without a pool or with too few rows for a batch, and a distiller that must validate."""

    public: PublicRows
    learn: Distiller

    def __call__(self, ctx: Context) -> None:
        _, rows = self.public(1, ctx)
        self.learn.plan(len(rows))
        refuse_keep_start(self.learn, "soft labels are learned without any here")

    def learning(self, data: Federation) -> tuple[Distiller, int] | None:
        return None if data.pool is None else (self.learn, min(self.public.rows, len(data.pool)))


@dataclass(frozen=True)
class SendLabels:
    """Sends each client the last global soft labels, if there are any, and no model."""

    def __call__(self, server: ServerState, client: int, ctx: Context) -> Task:
        return Task(client, ctx.round, None, {name: server.memory[name] for name in (GLOBAL,) if name in server.memory})


@dataclass(frozen=True)
class ExpectProbabilities:
    """Expects a number from 0 to 1 for each of the round's public examples and each class."""

    public: PublicRows

    def __call__(self, server: ServerState, client: int, ctx: Context) -> Extras:
        _, rows = self.public(ctx.round, ctx)
        return {PREDICTED: {"probs": TensorSpec((len(rows), ctx.nets.classes), low=0.0, high=1.0)}}


def row_problem(probs: Tensor) -> str | None:
    """Return why these (n, C) are no probabilities, or None."""
    worst = float((probs.sum(1) - 1).abs().max())
    return f"the sum of a row of its probabilities differs from 1 by {worst:.3g}" if worst > NEAR else None


def log_probabilities(probs: Tensor) -> Tensor:
    """Return logits (n, C) whose softmax gives the probabilities (n, C) again."""
    return probs.clamp(min=torch.finfo(probs.dtype).tiny).log()


@dataclass(frozen=True)
class LabelsAveraged:
    """Turns the clients' probabilities into the global soft labels, and trains every model of the server on them.

    A client whose rows do not sum to 1 is left out and recorded in the facts. Normalising the rows instead would accept
    anything between 0 and 1; the softmax of an honest client sums to 1.
    """

    public: PublicRows
    target: Target
    learn: Distiller

    def check(self, ctx: Context) -> None:
        self.target.start(1, ctx.nets.classes)

    def __call__(self, server: ServerState, updates: Iterable[Update], ctx: Context) -> tuple[ServerState, Facts]:
        pool, rows = self.public(ctx.round, ctx)
        self.learn.plan(len(rows))  # an unsuitable pool fails before any client works
        labelling, votes = Labelling(self.target, pool, rows), Votes(len(rows), ctx.nets.classes)
        dropped: dict[str, str] = {}
        for update in updates:
            probs = update.extra[PREDICTED]["probs"]
            if (problem := row_problem(probs)) is not None:
                dropped[str(update.client)] = problem
                continue
            logits = log_probabilities(probs)
            labelling.add(logits, f"client {update.client}")
            votes.add(logits)
        facts = Facts(teachers=labelling.teachers, dropped=dropped)
        if not labelling.teachers:
            warning = "no client sent probabilities: the server keeps labels and models"
            return replace(server, round=server.round + 1), replace(facts, warning=warning)
        labels = labelling.value()
        distilled = {arch: self._distil(model, pool, labels, ctx) for arch, model in server.models.items()}
        students = {arch: student for arch, (_, student) in distilled.items()}
        facts = replace(
            facts,
            ensemble=EnsembleQuality(disagreement=votes.disagreement(), entropy=votes.entropy()),
            students=students,
            warning=divergence(students),
            own={"rows": len(rows), "label_entropy": float(entropy(labels.probs).mean())},
        )
        memory = {GLOBAL: {"probs": labels.probs, "round": torch.tensor(ctx.round)}}
        return ServerState(server.round + 1, {arch: model for arch, (model, _) in distilled.items()}, memory), facts

    def _distil(self, model: Snapshot, pool: Pool, labels: SoftLabels, ctx: Context) -> tuple[Snapshot, Student]:
        net = ctx.nets.load(model, "student")
        try:
            result = self.learn(net, pool, labels, None, lambda what: ctx.rng(f"distil {what}", ctx.round, model.arch))
        except NotFiniteError as problem:
            reason = f"{problem}; the server keeps the previous model"
            return model, Student(0, FirstAndLast(math.nan, math.nan), reason, diverged=True)
        losses = FirstAndLast(float(result.losses[0]), float(result.losses[-1]))
        return Snapshot.of(model.arch, net), Student(result.steps, losses, result.reason)
