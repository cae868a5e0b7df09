"""Whose batch-norm statistics: of the average, and of the models that teach, after one round from FedAvg's own model.

The scale's settings train FedAvg, apart for each group and seed. Then the clients of one more round are averaged with
each policy for the statistics, and their ensemble predicts with the statistics of each client and with others. A last
row shows what missing classes cost the ensemble: it needs to know every client's labels, which a server does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from fedfuse.context import Context
from fedfuse.data.federation import Federation
from fedfuse.engines import InProcess
from fedfuse.fusion.aggregate import BufferPolicy, WeightedMean, recalibrate
from fedfuse.papers.comparison import experiment_of
from fedfuse.papers.item import Group, Item, ScaleName
from fedfuse.papers.result import Curves
from fedfuse.predict import predict
from fedfuse.records.directory import EXPERIMENT
from fedfuse.runs.display import Display
from fedfuse.runs.run import run
from fedfuse.runs.setup import load_federation, set_up
from fedfuse.select import cohort_size, select
from fedfuse.types import FedfuseError, ServerState, Snapshot, Update, model_of

AVERAGES: dict[str, BufferPolicy] = {
    "average, averaged statistics": "mean",
    "average, those of the last client (as released)": "last",
    "average, measured on the pool": "recalibrate",
}


def measure(item: Item, scale: ScaleName, seeds: Sequence[int], folder: Path, display: Display) -> Curves:
    """Measure all groups. FedAvg's runs that are finished in the folder are not repeated."""
    accuracies = {
        (group.name, seed): _measured(item, group, scale, seed, folder / f"{group.name}-seed{seed}", display)
        for group in item.groups
        for seed in seeds
    }
    return {
        group.name: {
            row.name: [[accuracies[group.name, seed][row.name]] for seed in seeds] for row in item.rows_of(group.name)
        }
        for group in item.groups
    }


def _measured(
    item: Item, group: Group, scale: ScaleName, seed: int, folder: Path, display: Display
) -> dict[str, float]:
    settings = {"run.seed": seed, "run.workers": 1, "run.selection": "uniform"}
    before = experiment_of(item, group, scale, settings)
    federation = load_federation(before)
    models = run(before, folder, resume=(folder / EXPERIMENT).exists(), display=display, federation=federation).models
    setup = set_up(before.with_settings({"run.rounds": before.run.rounds + 1}), federation)
    ctx, server = setup.ctx.at(before.run.rounds + 1), ServerState(before.run.rounds, models)
    sizes = torch.tensor(federation.sizes)
    cohort = select(sizes, cohort_size(len(sizes), before.run.fraction), "uniform", ctx.rng("select", ctx.round))
    with setup.arithmetic():
        tasks = (setup.algorithm.brief(server, client, ctx) for client in cohort)
        updates = [update for update in InProcess().run(setup.algorithm, tasks, ctx) if isinstance(update, Update)]
        if len(updates) < len(cohort):
            raise FedfuseError(f"{folder}: a client of round {ctx.round} failed")
        return _accuracies(updates, server, federation, ctx)


def _accuracies(
    updates: Sequence[Update], server: ServerState, federation: Federation, ctx: Context
) -> dict[str, float]:
    """Return the test accuracy of each row."""
    test = federation.test
    clients = [model_of(update, "the ensemble is made of client models") for update in updates]

    def logits(model: Snapshot) -> Tensor:  # (N, C)
        return predict(ctx.nets.load(model), test, torch.arange(len(test))).clone()

    def accuracy(logits: Tensor) -> float:
        return round((logits.argmax(1) == test.y).double().mean().item(), 6)

    def average(policy: BufferPolicy) -> Snapshot:
        running = WeightedMean(buffers=policy).start(server, ctx)
        for update in updates:
            running.add(update)
        return next(iter(running.value().models.values()))

    def ensemble(statistics: Callable[[Snapshot], Snapshot]) -> Tensor:  # (K, N, C)
        return torch.stack([logits(statistics(model)) for model in clients])

    labels = [federation.train.y[federation.parts[update.client]] for update in updates]
    shares = class_shares(labels, federation.train.classes)
    own, measured = ensemble(lambda model: model), ensemble(lambda model: recalibrate(model, ctx))
    return {
        **{name: accuracy(logits(average(policy))) for name, policy in AVERAGES.items()},
        "mean client, own statistics": round(sum(accuracy(one) for one in own) / len(own), 6),
        "mean client, measured on the pool": round(sum(accuracy(one) for one in measured) / len(measured), 6),
        "ensemble, own statistics (FedDF's)": accuracy(own.mean(0)),
        "ensemble, measured on the pool": accuracy(measured.mean(0)),
        "ensemble, corrected by the clients' labels": accuracy((own - shares.log()[:, None]).mean(0)),
    }


def class_shares(labels: Sequence[Tensor], classes: int) -> Tensor:
    """Return each client's share of examples by class (K, C), from its labels, with one example more in each class."""
    counts = torch.stack([torch.bincount(y, minlength=classes) for y in labels]) + 1.0
    return counts / counts.sum(1, keepdim=True)
