"""FedDF's Figures 1 and 8 (Lin et al.): averaging two local models blurs them, distilling their ensemble does not.

    python benchmarks/papers/toy.py [--seeds 10] [--out DIR]

Three classes in the plane, a 3-layer MLP, two local models that were each trained alone, their average (FedAvg),
their ensemble (mean logits), and FedDF: the average, distilled on 60 unlabeled points, uniform in (-3, 3) x (-3, 3).

The paper shows its data without describing it. Here each class is a round cloud; client 1 has the first class and
half of the second, client 2 the other half and the third. The paper's local models are "individually trained", so
each has initial weights of its own. In a federation both would start from the server's weights: the table's last
column shows that this toy is then no trouble for the average. Widths, rates and epochs are chosen so that each local
model fits its own classes. Writes the table and the picture of the seed with the middle gap (PNG and SVG).
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from drawing import INK, save
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from fedfuse import fuse, models, rng
from fedfuse.algorithms.fedavg import fedavg
from fedfuse.context import Context, Nets
from fedfuse.data.examples import Examples
from fedfuse.data.federation import Federation
from fedfuse.engines import InProcess
from fedfuse.fusion import AdamCosine, MeanLogits, WeightedMean, logits_of
from fedfuse.fusion.table import TensorPool
from fedfuse.local_settings import LocalSettings
from fedfuse.types import ServerState, Snapshot, Task, Update

ARCH = "mlp:32-32"  # three layers of weights
EDGE, POOL = 3.0, 60
RADIUS, SPREAD = 1.7, 0.5  # where the clouds lie, and their deviation
CLASSES = ("#2a6f97", "#e0a458", "#c8553d")


@dataclass(frozen=True)
class Scale:
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


@dataclass(frozen=True)
class Score:
    accuracy: float
    loss: float  # cross entropy on the test data, in nats: what blur costs


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


def make(seed: int, scale: Scale, *, shared_start: bool) -> Toy:
    data = federation(seed, scale.points)
    settings = LocalSettings(epochs=scale.epochs, batch_size=20, lr=0.1)
    ctx = Context(seed, 1, settings, data, (ARCH, ARCH), Nets(3, (2,)), round=1)
    updates = train(ctx, shared_start)
    running = WeightedMean().start(ServerState(0, {}), ctx)
    for update in updates:
        running.add(update)
    averages = running.value().models
    first, second, average = (net(m) for m in (*(u.model for u in updates), averages[ARCH]) if m is not None)
    pool = EDGE * (2 * torch.rand(POOL, 2, generator=ctx.rng("pool")) - 1)
    distiller = AdamCosine(lr=1e-2, steps=scale.steps, batch_size=POOL)
    student = fuse([first, second], average, pool, distiller=distiller, seed=seed).model
    fused = {"average (FedAvg)": [average], "ensemble": [first, second], "FedDF": [student]}
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


def scores(toy: Toy) -> dict[str, Score]:
    x, y = toy.data.test.x, toy.data.test.y
    scores = {name: probabilities(nets, x) for name, nets in toy.models.items()}
    return {
        name: Score(
            float((probs.argmax(1) == y).double().mean()),
            float(-probs[torch.arange(len(y)), y].clamp(min=1e-12).log().mean()),
        )
        for name, probs in scores.items()
    }


# --- What is shown


def spread(values: Iterable[float], digits: int = 1) -> str:
    values = list(values)
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.{digits}f} ± {deviation:.{digits}f}"


def table(own: Sequence[Mapping[str, Score]], shared: Sequence[Mapping[str, Score]], scale: Scale) -> Table:
    caption = (
        f"mean ± deviation over {len(own)} seeds; {scale.points} training points, {ARCH}, {scale.epochs} local epochs, "
        f"SGD 0.1, batch 20; {scale.steps} distillation steps on {POOL} points; 3,000 test points"
    )
    shown = Table(title="FedDF's toy", caption=caption, title_justify="left")
    for heading in ("", "accuracy, %", "log loss", "accuracy, %\nfrom a common start"):
        shown.add_column(heading, justify="right" if heading else "left")
    for name in own[0]:
        columns = (
            spread(100 * seed[name].accuracy for seed in own),
            spread((seed[name].loss for seed in own), 2),
            spread(100 * seed[name].accuracy for seed in shared),
        )
        shown.add_row(name, *columns)
    return shown


def pick(scores: Sequence[Mapping[str, Score]]) -> int:
    """The seed with the middle gap: a picture of the widest would promise too much."""
    gaps = [seed["FedDF"].accuracy - seed["average (FedAvg)"].accuracy for seed in scores]
    return sorted(range(len(gaps)), key=gaps.__getitem__)[(len(gaps) - 1) // 2]


PANELS = ("Local model 1", "Local model 2", "Their average: FedAvg", "Their ensemble", "Distilled: FedDF")


def picture(toy: Toy, scores: Mapping[str, Score], scale: Scale, path: Path) -> None:
    figure = Figure(figsize=(13.2, 3.75), facecolor="white")
    for number, (name, nets) in enumerate(toy.models.items()):
        axis = figure.add_axes((0.012 + number * 0.1975, 0.11, 0.186, 0.655))
        _regions(axis, nets, scale.pixels)
        shown = toy.data.parts[number] if number < 2 else torch.arange(len(toy.data.train))
        _points(axis, toy.data.train.subset(shown))
        if name == "FedDF":
            axis.scatter(*toy.pool.T.numpy(), s=11, marker="x", color=INK, linewidths=0.8)
        _dress(axis, PANELS[number], f"{100 * scores[name].accuracy:.0f}% of the test points right")
    title = "Two models, trained apart: averaging their weights blurs them, distilling their ensemble does not"
    figure.text(0.012, 0.935, title, fontsize=13, fontweight="bold", color=INK)
    _legend(figure)
    save(figure, path)


def _regions(axis: Any, nets: Sequence[nn.Module], pixels: int) -> None:
    """The classes' colours, mixed by their probabilities, and where the likeliest class changes."""
    line = torch.linspace(-EDGE, EDGE, pixels)
    y, x = torch.meshgrid(line, line, indexing="ij")
    probs = probabilities(nets, torch.stack((x.flatten(), y.flatten()), 1))
    pale = 0.5 * torch.tensor([to_rgb(colour) for colour in CLASSES]) + 0.5  # so that the points stand out
    image = (probs @ pale).view(pixels, pixels, 3)
    axis.imshow(image.numpy(), origin="lower", extent=(-EDGE, EDGE, -EDGE, EDGE), interpolation="bilinear")
    for label in range(3):
        others = torch.cat((probs[:, :label], probs[:, label + 1 :]), 1).amax(1)
        margin = (probs[:, label] - others).view(pixels, pixels)
        if bool((margin > 0).any()) and bool((margin < 0).any()):
            axis.contour(x.numpy(), y.numpy(), margin.numpy(), levels=[0.0], colors="white", linewidths=1.0)


def _points(axis: Any, examples: Examples) -> None:
    colours = [CLASSES[label] for label in examples.y.tolist()]
    axis.scatter(*examples.x.T.numpy(), s=13, c=colours, edgecolor="white", linewidths=0.4)


def _dress(axis: Any, title: str, below: str) -> None:
    axis.set_xlim(-EDGE, EDGE)
    axis.set_ylim(-EDGE, EDGE)
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set_visible(False)
    axis.set_title(title + "\n", loc="left", fontsize=10, fontweight="bold", color=INK, pad=3)
    axis.text(0, 1.025, below, transform=axis.transAxes, fontsize=8.5, color=INK)


def _legend(figure: Figure) -> None:
    dots = [Line2D([], [], marker="o", ls="", color=c, markersize=5) for c in CLASSES]
    cross = Line2D([], [], marker="x", ls="", color=INK, markersize=5)
    names = ["client 1 only", "both clients", "client 2 only", f"the {POOL} unlabeled points of the pool"]
    figure.legend([*dots, cross], names, loc="lower left", bbox_to_anchor=(0.004, -0.005), ncols=4, frameon=False,
                  fontsize=8.5, labelcolor=INK, handletextpad=0.2, columnspacing=1.6)  # fmt: skip


def main(arguments: Sequence[str] | None = None, scale: Scale = Scale()) -> None:  # noqa: B008  frozen
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--out", type=Path, default=Path("runs/papers/toy"))
    given = options.parse_args(arguments)
    torch.set_num_threads(1)
    toys = [make(seed, scale, shared_start=False) for seed in range(given.seeds)]
    own = [scores(toy) for toy in toys]
    shared = [scores(make(seed, scale, shared_start=True)) for seed in range(given.seeds)]
    given.out.mkdir(parents=True, exist_ok=True)
    console = Console(record=True, width=90)
    console.print(table(own, shared, scale))
    (given.out / "toy.txt").write_text(console.export_text(), encoding="utf-8")
    shown = pick(own)
    picture(toys[shown], own[shown], scale, given.out / "toy")


if __name__ == "__main__":
    main()
