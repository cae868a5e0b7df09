"""FedAvg against FedDF on CIFAR-10 with CIFAR-100 as the unlabeled pool: ResNet-8, alpha 1 and 0.1, in small.

    FEDFUSE_DATA=FOLDER python benchmarks/papers/cifar10.py [--rounds 4] [--epochs 5] [--steps 150] [--out DIR]

FedDF's setting (Table 1, Figures 15-17) at a scale for two cores: 20 clients of which 4 take part (C = 0.2), few
rounds and epochs instead of 100 and 40, at most `steps` distillation steps on `pool` images instead of 10,000 on
50,000. The table and the picture state the scale. The dashed line of the picture is the average before distillation,
the solid one the student after it. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

from drawing import COLOURS, INK, band, panels, save
from fedfuse.terminal.progress import Lines
from rich.console import Console
from rich.table import Table

import fedfuse
from fedfuse.records.record import RoundRecord
from fedfuse.records.statistics import Row
from fedfuse.reports import measures
from fedfuse.runs.compare import compare


def experiment(alpha: float, given: argparse.Namespace) -> fedfuse.Experiment:
    settings = {
        "data.pool.size": given.pool,
        "partition.alpha": alpha,
        "local.epochs": given.epochs,
        "run.rounds": given.rounds,
        "run.fraction": 0.2,
    }
    return fedfuse.load("cifar10", settings)


def scale(given: argparse.Namespace) -> str:
    return (
        f"ResNet-8, 20 clients, 4 a round, {given.rounds} rounds, {given.epochs} local epochs, "
        f"{given.steps} distillation steps, pool of {given.pool:,} CIFAR-100 images, 1 seed"
    )


def table(rows: dict[float, list[Row]], given: argparse.Namespace, seconds: float) -> Table:
    made = Table(title="CIFAR-10, test accuracy in %", caption=f"{scale(given)}; {seconds / 60:.0f} minutes")
    for column in ("alpha", "algorithm", "best", "final", "mean over rounds", "average before", "ensemble"):
        made.add_column(column, justify="left" if column == "algorithm" else "right")
    for alpha, pair in rows.items():
        for name, row in zip(("FedAvg", "FedDF"), pair, strict=True):
            facts = (
                () if name == "FedAvg" else (average_of(row.runs[0].history[-1]), ensemble_of(row.runs[0].history[-1]))
            )
            cells = (row.best[0], row.final[0], row.mean_over_rounds[0])
            made.add_row(f"{alpha:g}", name, *(f"{100 * v:.2f}" for v in (*cells, *facts)))
    return made


def average_of(record: RoundRecord) -> float:
    return measures.average(record) or 0.0


def ensemble_of(record: RoundRecord) -> float:
    return measures.ensemble(record) or 0.0


def picture(rows: dict[float, list[Row]], out: Path, given: argparse.Namespace) -> None:
    figure, axes = panels(len(rows))
    for axis, (alpha, (fedavg, feddf)) in zip(axes, rows.items(), strict=True):
        history = feddf.runs[0].history
        before = [average_of(r) for r in history]
        band(axis, [[r.test_accuracy for r in fedavg.runs[0].history]], "FedAvg", COLOURS[0])
        band(axis, [before], "FedDF, average before distillation", COLOURS[1], "--")
        band(axis, [[r.test_accuracy for r in history]], "FedDF, student after it", COLOURS[1])
        axis.set_title(f"alpha = {alpha:g}", color=INK, loc="left")
        axis.set_xlabel("round", color=INK)
    axes[0].set_ylabel("test accuracy, %", color=INK)
    axes[0].legend(frameon=False, labelcolor=INK, loc="lower right")
    figure.suptitle(f"CIFAR-10 with CIFAR-100 as pool\n{scale(given)}", color=INK, fontsize=10)
    save(figure, out / "cifar10")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=4)
    options.add_argument("--epochs", type=int, default=5)
    options.add_argument("--steps", type=int, default=150)
    options.add_argument("--pool", type=int, default=4_000)
    options.add_argument("--out", type=Path, default=Path("runs/papers/cifar10"))
    given = options.parse_args()
    start = perf_counter()
    feddf = f"feddf(steps={given.steps}, every=50, patience={given.steps})"
    rows = {
        alpha: compare(
            experiment(alpha, given),
            ["fedavg", feddf],
            seeds=[0],
            out=given.out / f"alpha-{alpha:g}",
            display=Lines(Console(stderr=True)),
        )
        for alpha in (1.0, 0.1)
    }
    console = Console(record=True, width=130)
    console.print(table(rows, given, perf_counter() - start))
    (given.out / "cifar10.txt").write_text(console.export_text())
    picture(rows, given.out, given)


if __name__ == "__main__":
    main()
