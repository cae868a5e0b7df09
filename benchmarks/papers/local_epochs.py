"""FedDF's gain over FedAvg by the length of local training (FedDF's Figure 2), on scikit-learn's digits.

    python benchmarks/papers/local_epochs.py [--seeds 3] [--rounds 8] [--out DIR]

The paper has ResNet-8 on CIFAR-10 and finds gains "when the local training is reasonably sufficient". Here: ten
clients, Dirichlet 0.1, four a round, an MLP with 64 and 32 hidden units, a pool of 259 unlabeled digits. A run that was
stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path

from drawing import COLOURS, INK, panels, save
from fedfuse.terminal.progress import Lines
from rich.console import Console
from rich.table import Table

import fedfuse
from fedfuse.records.statistics import Difference, Row, spread
from fedfuse.runs.compare import compare

EPOCHS = (1, 5, 20, 80)
ALGORITHMS = ("fedavg", "feddf(steps=500)")


def measure(given: argparse.Namespace) -> dict[int, list[Row]]:
    rows = {}
    for epochs in EPOCHS:
        experiment = fedfuse.load("digits", {"local.epochs": epochs, "run.rounds": given.rounds})
        rows[epochs] = compare(
            experiment, ALGORITHMS, seeds=range(given.seeds), out=given.out / str(epochs),
            display=Lines(Console(stderr=True)),
        )  # fmt: skip
    return rows


def gain(rows: list[Row]) -> Difference:
    average, distilled = rows
    return Difference.paired(distilled.mean_over_rounds, average.mean_over_rounds)


def scale(given: argparse.Namespace) -> str:
    return f"digits, 10 clients, Dirichlet 0.1, 4 a round, {given.rounds} rounds, {given.seeds} seeds"


def table(rows: dict[int, list[Row]], given: argparse.Namespace) -> Table:
    made = Table(title="Accuracy in %, mean over rounds", caption=scale(given))
    for column in ("local epochs", "FedAvg", "FedDF", "gain in points, paired"):
        made.add_column(column, justify="right")
    for epochs, each in rows.items():
        made.add_row(str(epochs), *(spread(row.mean_over_rounds) for row in each), gain(each).points())
    return made


def picture(rows: dict[int, list[Row]], given: argparse.Namespace) -> None:
    figure, (axis,) = panels(1, 6.4, 3.6)
    gains = [gain(each) for each in rows.values()]
    errors = [100 * (one.error or 0.0) for one in gains]
    axis.errorbar(
        range(len(gains)),
        [100 * one.mean for one in gains],
        yerr=errors,
        color=COLOURS[1],
        marker="o",
        linewidth=2,
        capsize=4,
    )  # fmt: skip
    axis.axhline(0, color=INK, linewidth=0.8)
    axis.set_xticks(range(len(gains)), [str(epochs) for epochs in rows])
    axis.set_xlabel("local epochs in a round", color=INK)
    axis.set_ylabel("FedDF above FedAvg, points", color=INK)
    title = f"Distillation pays where local training is long\n{scale(given)}\nmean over rounds, ± standard error"
    axis.set_title(title, color=INK, fontsize=9, loc="left")
    save(figure, given.out / "local_epochs")


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--rounds", type=int, default=8)
    options.add_argument("--commit", default="unknown", help="for the file of results")
    options.add_argument("--out", type=Path, default=Path("runs/papers/local_epochs"))
    given = options.parse_args(arguments)
    rows = measure(given)
    console = Console(record=True, width=100)
    console.print(table(rows, given))
    (given.out / "local_epochs.txt").write_text(console.export_text())
    measured = {
        "date": datetime.now(UTC).date().isoformat(), "commit": given.commit, "scale": scale(given),
        "command": f"python benchmarks/papers/local_epochs.py --seeds {given.seeds} --rounds {given.rounds}",
        "mean over rounds by seed": {
            str(epochs): {row.name: row.mean_over_rounds for row in each} for epochs, each in rows.items()
        },
    }  # fmt: skip
    (given.out / "local_epochs.json").write_text(json.dumps(measured, indent=1) + "\n")
    picture(rows, given)


if __name__ == "__main__":
    main()
