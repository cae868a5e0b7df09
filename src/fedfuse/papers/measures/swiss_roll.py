"""FedBE's Figure 1: mixtures of the clients' models on a swiss roll, and whether an ensemble of them beats FedAvg.

After the last round of FedAvg, the clients' models are mixed with shares from Dirichlet(0.5). Measured are FedAvg, the
mean probabilities of ten such mixtures, and the accuracy of every mixture over the triangle of shares.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from fedfuse import tree
from fedfuse.algorithm import Fuse
from fedfuse.algorithms.fedavg import fedavg
from fedfuse.config.experiment import Experiment
from fedfuse.context import Context
from fedfuse.engines import InProcess
from fedfuse.facts import Facts
from fedfuse.fusion import DirichletMixture, MeanProbs, logits_of
from fedfuse.papers.comparison import experiment_of
from fedfuse.papers.item import Item, ScaleName
from fedfuse.papers.measures.swiss_roll_picture import Panel, draw_panels
from fedfuse.papers.result import Curves
from fedfuse.papers.study import PICTURE
from fedfuse.round import run_round
from fedfuse.runs.display import Display
from fedfuse.runs.setup import load_federation, set_up
from fedfuse.types import ServerState, Snapshot, Update
from fedfuse.vet import Vetting

POSTERIOR, SAMPLES, DRAWS = DirichletMixture(alpha=0.5), 10, 10
SIDES = 30  # steps along a side of the triangle
FEDAVG, ENSEMBLE = "FedAvg", "ensemble of 10 mixtures"


@dataclass(frozen=True)
class Triangle:
    """Where the models of one seed lie. Shares are (P, 3)."""

    shares: Tensor
    accuracy: Tensor  # (P,)
    drawn: Tensor  # the shares of the first ensemble's mixtures


def measure(item: Item, scale: ScaleName, seeds: Sequence[int], folder: Path, display: Display) -> Curves:
    """Measure every group for every seed, and draw the triangle of the seed with the middle gain for each group."""
    curves: dict[str, dict[str, list[list[float]]]] = {}
    panels = []
    for number, group in enumerate(item.groups):
        experiment = experiment_of(item, group, scale)
        results, triangles = [], []
        for place, seed in enumerate(seeds):
            display.preparing(f"{group.name}: seed {seed}", (number + place / len(seeds)) / len(item.groups))
            accuracies, triangle = measure_seed(experiment, seed)
            results.append(accuracies)
            triangles.append(triangle)
        names = [row.name for row in item.rows_of(group.name)]
        curves[group.name] = {name: [[round(r[name], 6)] for r in results] for name in names}
        middle = middle_seed(results)
        ctx = context(experiment, seeds[middle])
        triangle = triangles[middle]
        panels.append(
            Panel(
                group.name, ctx.data.test, seeds[middle], results[middle][FEDAVG], triangle.shares, triangle.accuracy,
                triangle.drawn, [int(counts.argmax()) for counts in ctx.data.counts],
            )
        )  # fmt: skip
    display.preparing("drawing", 1.0)
    draw_panels(panels, folder / PICTURE)
    return curves


def measure_seed(experiment: Experiment, seed: int, sides: int = SIDES) -> tuple[dict[str, float], Triangle]:
    """Return the test accuracies of one seed by row, and its triangle."""
    ctx = context(experiment, seed)
    average, clients = train(ctx)
    of_samples = torch.stack([logits(model, ctx) for model in mixtures(clients, DRAWS * SAMPLES, ctx)])  # (M, N, C)
    of_clients = torch.stack([logits(model, ctx) for model in clients])
    triangle = survey(clients, ctx, sides)
    draws = [accuracy(MeanProbs()(ten), ctx) for ten in of_samples.reshape(-1, SAMPLES, *of_samples.shape[1:])]
    accuracies = {
        FEDAVG: accuracy(logits(average, ctx), ctx),
        ENSEMBLE: draws[0],
        f"the same, mean of {DRAWS} draws": statistics.fmean(draws),
        f"ensemble of {DRAWS * SAMPLES} mixtures": accuracy(MeanProbs()(of_samples), ctx),
        "ensemble of the clients": accuracy(MeanProbs()(of_clients), ctx),
        "one mixture, mean": statistics.fmean(accuracy(s, ctx) for s in of_samples[:SAMPLES]),
        "one client, mean": statistics.fmean(accuracy(s, ctx) for s in of_clients),
        "best mixture, chosen on the test data": float(triangle.accuracy.max()),
    }
    return accuracies, triangle


def context(experiment: Experiment, seed: int) -> Context:
    seeded = experiment.with_settings({"data.seed": seed, "run.seed": seed})
    return set_up(seeded, load_federation(seeded)).ctx


@dataclass
class KeepsUpdates:
    """A fusion that also keeps the updates of its latest round: a round hands them on and forgets them."""

    fuse: Fuse
    updates: list[Update]

    def __call__(self, server: ServerState, updates: Iterable[Update], ctx: Context) -> tuple[ServerState, Facts]:
        self.updates = list(updates)
        return self.fuse(server, self.updates, ctx)


def train(ctx: Context) -> tuple[Snapshot, list[Snapshot]]:
    """Return FedAvg's last model, and the client models that it is the mean of."""
    arch = ctx.archs[0]
    server = ServerState(0, {arch: ctx.nets.initial(arch, ctx.rng("init", arch))})
    keeping, engine = KeepsUpdates(fedavg().fuse, []), InProcess()
    algorithm = replace(fedavg(), fuse=keeping)
    cohort = list(range(len(ctx.data.sizes)))
    for number in range(1, ctx.rounds + 1):
        server, _ = run_round(algorithm, server, engine, cohort, Vetting(quorum=len(cohort)), ctx.at(number))
    return server.models[arch], [update.model for update in keeping.updates if update.model is not None]


def mixtures(models: Sequence[Snapshot], count: int, ctx: Context) -> list[Snapshot]:
    """Draw mixtures from the posterior; the shares do not depend on the models."""
    sampler = POSTERIOR.fit(models)
    return [sampler.sample(ctx.rng("sample", number)) for number in range(count)]


def survey(clients: Sequence[Snapshot], ctx: Context, sides: int) -> Triangle:
    """Measure mixtures on a grid over the triangle."""
    steps = range(sides + 1)
    shares = torch.tensor([[i, j, sides - i - j] for i in steps for j in steps if i + j <= sides]) / sides
    accuracies = torch.tensor([accuracy(logits(mixture(clients, row.tolist()), ctx), ctx) for row in shares])
    # A mixture of unit vectors is its own shares, so the same draw of them gives the places of the samples.
    units = [Snapshot("unit", {"shares": row}) for row in torch.eye(len(clients))]
    drawn = torch.stack([sample.params["shares"] for sample in mixtures(units, SAMPLES, ctx)])
    return Triangle(shares, accuracies, drawn)


def mixture(models: Sequence[Snapshot], shares: Sequence[float]) -> Snapshot:
    running = tree.RunningSnapshots()
    for model, share in zip(models, shares, strict=True):
        if share > 0:
            running.add(model, share)
    (mixed,) = running.value().values()
    return mixed


def logits(model: Snapshot, ctx: Context) -> Tensor:
    """Return (N, C) on the test data."""
    test = ctx.data.test
    return logits_of(ctx.nets.load(model), test, torch.arange(len(test)), "a mixture")


def accuracy(scores: Tensor, ctx: Context) -> float:
    """Return the accuracy of logits or probabilities (N, C)."""
    return float((scores.argmax(1) == ctx.data.test.y).double().mean())


def middle_seed(results: Sequence[dict[str, float]]) -> int:
    """Return the place of the seed with the middle gain: a picture of the best seed would promise too much."""
    order = sorted(range(len(results)), key=lambda i: results[i][ENSEMBLE] - results[i][FEDAVG])
    return order[(len(order) - 1) // 2]
