"""FedBE's Figure 1 (Chen & Chao): mixtures of the client models, and whether an ensemble of them beats FedAvg.

    python benchmarks/papers/swiss_roll.py [--seeds 10] [--out DIR] [--grid]

Three clients with equally many examples, 80% of one class and 10% of each other; a two-layer MLP; 10 rounds of 2
epochs. Then the last round's client models are mixed with shares from Dirichlet(0.5): FedAvg against the mean
probabilities of 10 such mixtures, and the accuracy of every mixture over the triangle of shares.

The paper says no more than that; the rest is chosen here. SGD with momentum 0.9 and batches of 40 are what FedBE uses
for its images. The data is `swiss-roll` with its default noise; 256 hidden units at rate 0.1 learn it (89%) when
one client has it all. The number of points was then set so that *FedAvg* meets the paper's 64%. No constant was set
for the ensemble's gain; `--grid` and the README here show what other constants give. Writes the table,
each seed's numbers (CSV) and the picture of the seed with the middle gain (PNG and SVG).
"""

from __future__ import annotations

import argparse
import csv
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from drawing import COLOURS, FAINT, INK, save
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.tri import TriAnalyzer, Triangulation
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

import fedfuse
from fedfuse import tree
from fedfuse.algorithm import Facts, Fuse
from fedfuse.algorithms.fedavg import fedavg
from fedfuse.context import Context
from fedfuse.engines import InProcess
from fedfuse.fusion import DirichletMixture, MeanProbs, logits_of
from fedfuse.round import run_round
from fedfuse.runs.setup import load_federation, set_up
from fedfuse.types import ServerState, Snapshot, Update
from fedfuse.vet import Vetting

POSTERIOR, SAMPLES, DRAWS = DirichletMixture(alpha=0.5), 10, 10
COMPARED = ("fedavg", "ensemble", "ensemble_many")
BASE, CLASSES = COLOURS[0], ("#2a6f97", "#e0a458", "#c8553d")
SHADES = LinearSegmentedColormap.from_list("accuracy", ["#f6f2e9", "#b9d3d8", "#5b9aae", "#1f5470"])
CORNERS = torch.tensor([[0.5, 3**0.5 / 2], [0.0, 0.0], [1.0, 0.0]])  # of the triangle, one per client


@dataclass(frozen=True)
class Scale:
    """What the paper leaves open, and what a quick look may make smaller."""

    points: int = 6600
    hidden: int = 256
    rounds: int = 10
    sides: int = 30  # steps along a side of the triangle


@dataclass(frozen=True)
class Result:
    """Test accuracies of one seed."""

    seed: int
    fedavg: float
    ensemble: float  # of SAMPLES mixtures, one draw, as the paper has it
    ensemble_mean: float  # over DRAWS of SAMPLES mixtures: with so few, the luck of one draw is large
    better: int  # of these DRAWS, how many beat FedAvg
    better_by_5: int  # and how many by the paper's 5 points
    ensemble_many: float  # of all these mixtures together
    client_ensemble: float
    clients: float  # their mean
    samples: float  # the mean of the mixtures
    best: float  # of the triangle, chosen on the test data: what could be had, not what anyone could choose


@dataclass(frozen=True)
class Triangle:
    """Where the models of one seed lie, for the picture. Shares are (P, 3)."""

    shares: Tensor
    accuracy: Tensor  # (P,)
    drawn: Tensor  # the shares of the SAMPLES mixtures


@dataclass
class Keeping:
    """A fusion that also keeps the updates of its latest round: a round hands them on and forgets them."""

    fuse: Fuse
    updates: list[Update]

    def __call__(self, server: ServerState, updates: Iterable[Update], ctx: Context) -> tuple[ServerState, Facts]:
        self.updates = list(updates)
        return self.fuse(server, self.updates, ctx)


def context(seed: int, scale: Scale) -> Context:
    experiment = fedfuse.Experiment(
        data={"source": "swiss-roll", "examples": scale.points, "seed": seed, "validation": 0},
        partition={"scheme": "step", "clients": 3, "major": 1, "minor": 0.1},  # 80/10/10
        models=f"mlp:{scale.hidden}",
        local={"epochs": 2, "batch_size": 40, "lr": 0.1, "momentum": 0.9},
        run={"rounds": scale.rounds, "seed": seed},
    )
    return set_up(experiment, load_federation(experiment)).ctx


def train(ctx: Context) -> tuple[Snapshot, list[Snapshot]]:
    """FedAvg's last model, and the client models that it is the mean of."""
    arch = ctx.archs[0]
    server = ServerState(0, {arch: ctx.nets.initial(arch, ctx.rng("init", arch))})
    keeping, engine = Keeping(fedavg().fuse, []), InProcess()
    algorithm = replace(fedavg(), fuse=keeping)
    for number in range(1, ctx.rounds + 1):
        server, _ = run_round(algorithm, server, engine, [0, 1, 2], Vetting(quorum=3), ctx.at(number))
    return server.models[arch], [update.model for update in keeping.updates if update.model is not None]


def measure(seed: int, scale: Scale) -> tuple[Result, Triangle]:
    ctx = context(seed, scale)
    average, clients = train(ctx)
    samples = draw(clients, DRAWS * SAMPLES, ctx)
    said = torch.stack([logits(model, ctx) for model in samples])  # (M, N, C)
    said_by_clients = torch.stack([logits(model, ctx) for model in clients])
    triangle = survey(clients, ctx, scale.sides)
    of_average = accuracy(logits(average, ctx), ctx)
    draws = [accuracy(MeanProbs()(ten), ctx) for ten in said.split(SAMPLES)]
    result = Result(
        seed=seed,
        fedavg=of_average,
        ensemble=draws[0],
        ensemble_mean=statistics.mean(draws),
        better=sum(d > of_average for d in draws),
        better_by_5=sum(d >= of_average + 0.05 for d in draws),
        ensemble_many=accuracy(MeanProbs()(said), ctx),
        client_ensemble=accuracy(MeanProbs()(said_by_clients), ctx),
        clients=statistics.mean(accuracy(s, ctx) for s in said_by_clients),
        samples=statistics.mean(accuracy(s, ctx) for s in said[:SAMPLES]),
        best=float(triangle.accuracy.max()),
    )
    return result, triangle


def draw(models: Sequence[Snapshot], count: int, ctx: Context) -> list[Snapshot]:
    """Mixtures from the posterior; the same shares whatever the models are."""
    sampler = POSTERIOR.fit(models)
    return [sampler.sample(ctx.rng("sample", number)) for number in range(count)]


def survey(clients: Sequence[Snapshot], ctx: Context, sides: int) -> Triangle:
    """The accuracy of mixtures on a grid over the triangle."""
    steps = range(sides + 1)
    shares = torch.tensor([[i, j, sides - i - j] for i in steps for j in steps if i + j <= sides]) / sides
    accuracies = torch.tensor([accuracy(logits(mixture(clients, row.tolist()), ctx), ctx) for row in shares])
    # A mixture of unit vectors is its own shares, so the same draw of them says where the samples lie.
    units = [Snapshot("unit", {"shares": row}) for row in torch.eye(len(clients))]
    drawn = torch.stack([sample.params["shares"] for sample in draw(units, SAMPLES, ctx)])
    return Triangle(shares, accuracies, drawn)


def mixture(models: Sequence[Snapshot], shares: Sequence[float]) -> Snapshot:
    running = tree.RunningSnapshots()
    for model, share in zip(models, shares, strict=True):
        if share > 0:
            running.add(model, share)
    (mixed,) = running.value().values()
    return mixed


def logits(model: Snapshot, ctx: Context) -> Tensor:
    """(N, C) on the test data."""
    test = ctx.data.test
    return logits_of(ctx.nets.load(model), test, torch.arange(len(test)), "a mixture")


def accuracy(scores: Tensor, ctx: Context) -> float:
    """Of logits or probabilities (N, C)."""
    return float((scores.argmax(1) == ctx.data.test.y).double().mean())


def pick(results: Sequence[Result]) -> int:
    """The number of the seed with the middle gain: a picture of the best seed would promise too much."""
    order = sorted(range(len(results)), key=lambda i: results[i].ensemble - results[i].fedavg)
    return order[(len(order) - 1) // 2]


# --- What is shown


def spread(values: Iterable[float]) -> str:
    values = [100 * v for v in values]
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.1f} ± {deviation:.1f}"


def luck(results: Sequence[Result]) -> str:
    total = DRAWS * len(results)
    better, by_5 = sum(r.better for r in results), sum(r.better_by_5 for r in results)
    return f"{better} of {total}; by 5 points: {by_5}"


def described(scale: Scale) -> str:
    return (
        f"3 clients 80/10/10, {scale.points:,} points (a fifth more for testing), {scale.hidden} hidden units, "
        f"{scale.rounds} rounds x 2 epochs, SGD 0.1, momentum 0.9, batch 40"
    )


ROWS = {
    "fedavg": ("FedAvg", "64"),
    "ensemble": (f"ensemble of {SAMPLES} Dirichlet(0.5) mixtures", "69"),
    "ensemble_mean": (f"the same, mean of {DRAWS} draws of {SAMPLES}", ""),
    "ensemble_many": (f"ensemble of all {DRAWS * SAMPLES} mixtures", ""),
    "client_ensemble": ("ensemble of the 3 clients", ""),
    "samples": ("one mixture, mean", ""),
    "clients": ("one client, mean", ""),
    "best": ("best mixture, chosen on the test data", ""),
}


def table(results: Sequence[Result], scale: Scale) -> Table:
    shown = Table(title="Swiss roll: test accuracy in %", caption=described(scale), title_justify="left")
    for heading, side in (("", "left"), (f"mean ± deviation, {len(results)} seeds", "right"), ("paper", "right")):
        shown.add_column(heading, justify=side)
    for field, (name, paper) in ROWS.items():
        shown.add_row(name, spread(getattr(r, field) for r in results), paper)
    shown.add_section()
    shown.add_row("the draw of 10 over FedAvg, points", spread(r.ensemble - r.fedavg for r in results), "+5")
    shown.add_row("draws of 10 that beat FedAvg", luck(results), "")
    return shown


def grid(seeds: int, scale: Scale) -> Table:
    """The same comparison with other values of what the paper leaves open."""
    shown = Table(title=f"Other choices, {seeds} seeds", caption=described(scale) + ", except as shown")
    for heading in ("points", "hidden", "FedAvg", "ensemble of 10,\nmean of 10 draws", "draws that beat FedAvg"):
        shown.add_column(heading, justify="right")
    choices = [(points, hidden) for points in (3000, 6600, 9000) for hidden in (64, 256, 1024)]
    for points, hidden in track(choices, "other choices", console=Console(stderr=True), transient=True):
        at = replace(scale, points=points, hidden=hidden, sides=1)
        results = [measure(seed, at)[0] for seed in range(seeds)]
        columns = (spread(r.fedavg for r in results), spread(r.ensemble_mean for r in results), luck(results))
        shown.add_row(f"{points:,}", str(hidden), *columns)
    return shown


def show(what: Table, path: Path) -> None:
    console = Console(record=True, width=100)
    console.print(what)
    path.write_text(console.export_text(), encoding="utf-8")


def save_csv(results: Sequence[Result], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Result)], lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: round(v, 6) for k, v in asdict(r).items()} for r in results)


def picture(results: Sequence[Result], shown: int, triangle: Triangle, ctx: Context, folder: Path) -> None:
    figure = Figure(figsize=(11.4, 4.5), facecolor="white")
    data, simplex, seeds = (
        figure.add_axes(box) for box in ([0.02, 0.12, 0.25, 0.66], [0.30, 0.12, 0.37, 0.66], [0.755, 0.17, 0.225, 0.61])
    )
    figure.text(0.02, 0.93, _headline(results), fontsize=13, fontweight="bold", color=INK)
    _data_panel(data, ctx)
    _simplex_panel(figure, simplex, results[shown], triangle, ctx)
    _seeds_panel(seeds, results)
    save(figure, folder / "swiss_roll")


def _headline(results: Sequence[Result]) -> str:
    first, second, third = (100 * statistics.mean(getattr(r, name) for r in results) for name in COMPARED)
    ensembles = f"ensemble of {SAMPLES} random mixtures {second:.1f}%, of {SAMPLES * DRAWS} {third:.1f}%"
    return f"Swiss roll: FedAvg {first:.1f}%, {ensembles}"


def _title(axis: Any, title: str, below: str) -> None:
    axis.set_title(title + "\n", loc="left", fontsize=10, fontweight="bold", color=INK, pad=6)
    axis.text(0, 1.025, below, transform=axis.transAxes, fontsize=8.5, color=INK)


def _data_panel(axis: Any, ctx: Context) -> None:
    test = ctx.data.test
    axis.scatter(*test.x.T.numpy(), s=5, c=[CLASSES[y] for y in test.y.tolist()], linewidths=0, alpha=0.9)
    axis.set_aspect("equal", anchor="NW")
    axis.axis("off")
    _title(axis, "Three classes, wound about each other", f"{len(test):,} test points")


def _simplex_panel(figure: Figure, axis: Any, result: Result, triangle: Triangle, ctx: Context) -> None:
    cells = Triangulation(*(triangle.shares @ CORNERS).T.double().numpy())
    cells.set_mask(TriAnalyzer(cells).get_flat_tri_mask())  # rounding leaves slivers along the sides
    percent = 100 * triangle.accuracy.numpy()
    # A smooth mesh of hundreds of triangles: as vectors it would make a large file that shows seams.
    mesh = axis.tripcolor(cells, percent, shading="gouraud", cmap=SHADES, rasterized=True)
    axis.tricontour(cells, percent, levels=[100 * result.fedavg], colors=INK, linewidths=0.8, linestyles="--")
    _mark_models(axis, triangle)
    for corner, counts, client in zip(CORNERS.tolist(), ctx.data.counts, range(3), strict=True):
        _corner(axis, corner, client, int(counts.argmax()))
    axis.set_xlim(-0.18, 1.18)
    axis.set_ylim(-0.15, 0.96)
    axis.set_aspect("equal")
    axis.axis("off")
    _title(
        axis,
        "Accuracy of every mixture of the clients' models",
        f"a corner is a client, in the colour of 80% of its data (seed {result.seed})",
    )
    bar = figure.colorbar(mesh, cax=axis.inset_axes([1.0, 0.25, 0.025, 0.5]), format="%.0f%%")
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, colors=INK)


def _mark_models(axis: Any, triangle: Triangle) -> None:
    best = triangle.shares[triangle.accuracy.argmax()] @ CORNERS
    centre = CORNERS.mean(0)
    samples = (triangle.drawn @ CORNERS).T.numpy()
    axis.scatter(*samples, s=26, facecolor="white", edgecolor=INK, linewidth=0.9, zorder=4, label="the 10 mixtures")
    axis.scatter(*centre, s=44, color=INK, zorder=5, label="FedAvg")
    axis.scatter(*best, s=110, marker="*", color=CLASSES[1], edgecolor=INK, linewidth=0.6, zorder=6, label="best")
    axis.plot([], [], color=INK, linewidth=0.8, linestyle="--", label="as good as FedAvg")
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=4, frameon=False, fontsize=8, labelcolor=INK,
                handletextpad=0.4, columnspacing=1.4)  # fmt: skip


def _corner(axis: Any, corner: Sequence[float], client: int, major: int) -> None:
    x, y = corner
    top = y > 0.5
    axis.scatter(x, y, s=60, color=CLASSES[major], edgecolor="white", linewidth=1.2, zorder=5, clip_on=False)
    text = f"client {client + 1}"
    axis.text(x + (0.06 if top else 0), y if top else y - 0.05, text, fontsize=8.5, color=INK,
              ha="left" if top else "center", va="center" if top else "top")  # fmt: skip


def _seeds_panel(axis: Any, results: Sequence[Result]) -> None:
    rows = [[100 * getattr(r, name) for name in COMPARED] for r in results]
    for row in rows:
        axis.plot(row, color=BASE, linewidth=1, alpha=0.6, marker="o", markersize=3, markeredgewidth=0)
    axis.plot([statistics.mean(c) for c in zip(*rows, strict=True)], color=CLASSES[0], linewidth=2.4, marker="o")
    axis.set_xlim(-0.3, 2.3)
    axis.set_xticks([0, 1, 2], ["FedAvg", "ensemble\nof 10", "ensemble\nof 100"])
    axis.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axis.yaxis.set_major_formatter("{x:.0f}%")
    axis.grid(axis="y", color=FAINT, linewidth=0.6)
    axis.tick_params(length=0, labelsize=8.5, colors=INK)
    for spine in axis.spines.values():
        spine.set_visible(False)
    ten, hundred = (sum(row[i] > row[0] for row in rows) for i in (1, 2))
    below = f"10 mixtures beat FedAvg in {ten} of {len(rows)}, 100 in {hundred}"
    _title(axis, f"All {len(rows)} seeds, and their mean", below)


def main(arguments: Sequence[str] | None = None, scale: Scale = Scale()) -> None:  # noqa: B008  frozen
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--out", type=Path, default=Path("runs/papers/swiss_roll"))
    options.add_argument("--grid", action="store_true", help="only compare other numbers of points and hidden units")
    given = options.parse_args(arguments)
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    if given.grid:
        return show(grid(given.seeds, scale), given.out / "swiss_roll_grid.txt")
    seeds = track(range(given.seeds), "seeds", console=Console(stderr=True), transient=True)
    results, triangles = zip(*[measure(seed, scale) for seed in seeds], strict=True)
    save_csv(results, given.out / "swiss_roll.csv")
    shown = pick(results)
    picture(results, shown, triangles[shown], context(results[shown].seed, scale), given.out)
    return show(table(results, scale), given.out / "swiss_roll.txt")


if __name__ == "__main__":
    main()
