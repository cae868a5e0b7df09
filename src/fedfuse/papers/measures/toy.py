"""FedDF's Figures 1 and 8: averaging two local models blurs them, distilling their ensemble does not.

Three classes in the plane, a 3-layer perceptron, two local models that were each trained alone, their average (FedAvg),
their ensemble (mean logits), and FedDF: the average, distilled on 60 unlabeled points, uniform in (-3, 3) x (-3, 3).

The paper shows its data without describing it. Here each class is a round cloud; client 1 has the first class and
half of the second, client 2 the other half and the third. The paper's local models are "individually trained", so
each has initial weights of its own. In a federation both would start from the server's weights. Widths, rates and
epochs are chosen so that each local model fits its own classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from fedfuse import models, rng
from fedfuse.algorithms.fedavg import fedavg
from fedfuse.compute.threads import threads
from fedfuse.context import Context, Nets
from fedfuse.data.examples import Examples
from fedfuse.data.federation import Federation
from fedfuse.engines import InProcess
from fedfuse.fusion import AdamCosine, MeanLogits, WeightedMean, logits_of
from fedfuse.fusion.table import TensorPool
from fedfuse.in_hand.fuse import fuse
from fedfuse.local_settings import LocalSettings
from fedfuse.papers.item import Item, ScaleName
from fedfuse.papers.measures.toy_picture import draw_panels
from fedfuse.papers.result import Curves
from fedfuse.papers.study import PICTURE
from fedfuse.runs.display import Display
from fedfuse.types import ServerState, Snapshot, Task, Update

ARCH = "mlp:32-32"  # three layers of weights
EDGE, POOL = 3.0, 60
RADIUS, SPREAD = 1.7, 0.5  # where the clouds lie, and their deviation
OWN = "own initial weights"  # the group whose local models are individually trained, as in the paper
AVERAGE, ENSEMBLE, STUDENT = "average (FedAvg)", "ensemble", "FedDF"


@dataclass(frozen=True)
class Sizes:
    """What a quick look may make smaller."""

    points: int = 300
    epochs: int = 50
    steps: int = 500
    pixels: int = 300  # along a side of a panel


@dataclass(frozen=True)
class Toy:
    """One seed's data and models. A model is a list of nets whose logits are averaged: only the ensemble has two."""

    data: Federation
    pool: Tensor  # (60, 2)
    models: Mapping[str, Sequence[nn.Module]]


def measure(item: Item, scale: ScaleName, seeds: Sequence[int], folder: Path, display: Display) -> Curves:
    """Measure every group for every seed, and draw the seed with the middle gap of each local model's own start."""
    return measure_sizes(item, seeds, folder, display, Sizes())


def measure_sizes(item: Item, seeds: Sequence[int], folder: Path, display: Display, sizes: Sizes) -> Curves:
    curves: dict[str, dict[str, list[list[float]]]] = {}
    for group in item.groups:
        toys, scores = [], []
        for place, seed in enumerate(seeds):
            display.preparing(f"{group.name}: seed {seed}", place / len(seeds))
            with threads(1):
                toys.append(make(seed, sizes, shared_start=group.name != OWN))
                scores.append(accuracies(toys[-1]))
        curves[group.name] = {name: [[score[name]] for score in scores] for name in scores[0]}
        if group.name == OWN or len(item.groups) == 1:
            shown = middle_gap(scores)
            folder.mkdir(parents=True, exist_ok=True)
            draw(toys[shown], scores[shown], sizes, folder / PICTURE)
    return curves


def middle_gap(scores: Sequence[Mapping[str, float]]) -> int:
    """Return the seed with the middle gap: a picture of the widest would promise too much."""
    gaps = [score[STUDENT] - score[AVERAGE] for score in scores]
    return sorted(range(len(gaps)), key=gaps.__getitem__)[(len(gaps) - 1) // 2]


def draw(toy: Toy, scores: Mapping[str, float], sizes: Sizes, path: Path) -> None:
    """Draw the decision regions of all models, and the points that each was trained on."""
    line = torch.linspace(-EDGE, EDGE, sizes.pixels)
    y, x = torch.meshgrid(line, line, indexing="ij")
    grid = torch.stack((x.flatten(), y.flatten()), 1)
    regions = [probabilities(nets, grid).view(sizes.pixels, sizes.pixels, 3) for nets in toy.models.values()]
    everyone = torch.arange(len(toy.data.train))
    parts = [toy.data.train.subset(rows) for rows in (*toy.data.parts, *[everyone] * 3)]
    draw_panels(regions, parts, list(scores.values()), toy.pool, EDGE, path)


def clouds(number: int, draw: torch.Generator) -> Examples:
    y = torch.arange(number) % 3
    angle = math.pi / 2 + y * (2 * math.pi / 3)
    x = RADIUS * torch.stack((angle.cos(), angle.sin()), 1) + SPREAD * torch.randn(number, 2, generator=draw)
    # Not standardised: pool and data are to be in the same units.
    return Examples(x, y, 3, mean=torch.zeros(2), std=torch.ones(2))


def federation(seed: int, points: int) -> Federation:
    train = clouds(points, rng.generator(seed, "toy", "train"))
    first, second, third = ((train.y == label).nonzero().squeeze(1) for label in range(3))
    half = len(second) // 2
    parts = (torch.cat((first, second[:half])), torch.cat((second[half:], third)))
    test = clouds(3000, rng.generator(seed, "toy", "test"))
    return Federation(train, parts, train.subset(torch.arange(0)), test, None, ("A", "B", "C"))


def make(seed: int, sizes: Sizes, *, shared_start: bool) -> Toy:
    data = federation(seed, sizes.points)
    settings = LocalSettings(epochs=sizes.epochs, batch_size=20, lr=0.1)
    ctx = Context(seed, 1, settings, data, (ARCH, ARCH), Nets(3, (2,)), round=1)
    updates = train(ctx, shared_start)
    running = WeightedMean().start(ServerState(0, {}), ctx)
    for update in updates:
        running.add(update)
    averages = running.value().models
    first, second, average = (net(m) for m in (*(u.model for u in updates), averages[ARCH]) if m is not None)
    pool = EDGE * (2 * torch.rand(POOL, 2, generator=ctx.rng("pool")) - 1)
    distiller = AdamCosine(lr=1e-2, steps=sizes.steps, batch_size=POOL)
    student = fuse([first, second], average, pool, distiller=distiller, seed=seed).model
    fused = {AVERAGE: [average], ENSEMBLE: [first, second], STUDENT: [student]}
    return Toy(data, pool, {"local model 1": [first], "local model 2": [second], **fused})


def train(ctx: Context, shared_start: bool) -> list[Update]:
    """Both clients train once, from weights of their own or from common ones."""
    starts = [ctx.nets.initial(ARCH, ctx.rng("init", 0 if shared_start else client)) for client in (0, 1)]
    tasks = [Task(client, 1, start) for client, start in enumerate(starts)]
    return [answer for answer in InProcess().run(fedavg(), tasks, ctx) if isinstance(answer, Update)]


def net(model: Snapshot) -> nn.Module:
    return model.load_into(models.build(ARCH, classes=3, shape=(2,)))


def probabilities(nets: Sequence[nn.Module], x: Tensor) -> Tensor:
    """x (N, 2) -> (N, 3)."""
    rows = torch.arange(len(x))
    return MeanLogits()(torch.stack([logits_of(each, TensorPool(x), rows, "a model") for each in nets]))


def accuracies(toy: Toy) -> dict[str, float]:
    """Return the share of the test points that each model gets right."""
    x, y = toy.data.test.x, toy.data.test.y
    assert isinstance(x, Tensor)
    return {name: float((probabilities(nets, x).argmax(1) == y).double().mean()) for name, nets in toy.models.items()}
