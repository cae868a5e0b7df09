"""Accuracy against uploaded bytes: FedAvg of ResNet-8s on CIFAR-10 with four formats of upload, in small.

    python benchmarks/papers/uploads.py [--seeds 3] [--data-dir FOLDER] [--rounds 4] [--epochs 4] [--out DIR]

At a scale for two cores: 4 of 20 clients, alpha 1, few rounds and epochs, images of 16x16 without augmentation. Clients
send their models, or where the format loses something, differences from the received model. A run that was stopped goes
on where it was. One-bit nets are another thing: `fedfuse papers run feddf-table-4`.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path

from drawing import COLOURS, INK, panels, save
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter
from rich.console import Console
from rich.table import Table

import fedfuse
from fedfuse.packing import UPLOADS
from fedfuse.papers.study import commit
from fedfuse.records.statistics import Row, spread
from fedfuse.runs.compare import compare
from fedfuse.runs.progress import Lines

MB = 1e6


def experiment(given: argparse.Namespace) -> fedfuse.Experiment:
    settings = {
        "data.size": given.size,
        "data.pool.size": 4_000,
        "partition.alpha": 1.0,
        "models.clients": "resnet8:bn",
        "local.epochs": given.epochs,
        "local.augment": "none",
        "run.rounds": given.rounds,
        "run.fraction": 0.2,
    }
    return fedfuse.load("cifar10", settings)


def algorithms() -> dict[str, str]:
    """FedAvg by format."""
    lossy = {upload: f'fedavg(local.upload="{upload}", local.upload_of="difference")' for upload in UPLOADS[1:]}
    return {UPLOADS[0]: "fedavg", **lossy}


def scale(given: argparse.Namespace) -> str:
    return (
        f"ResNet-8 at {given.size}x{given.size}, 20 clients, alpha 1, 4 a round, {given.rounds} rounds, "
        f"{given.epochs} local epochs, {given.seeds} seeds"
    )


def megabytes(row: Row) -> float:
    """What one client uploads in a round, in the mean."""
    return sum(r.bytes_up / len(r.cohort) for r in row.runs[0].history) / len(row.runs[0].history) / MB


def table(rows: dict[str, Row], given: argparse.Namespace) -> Table:
    made = Table(title="Uploads, test accuracy in %", caption=scale(given))
    for column in ("what is uploaded", "MB a client and round", "times smaller", "final", "best"):
        made.add_column(column, justify="left" if column.startswith("what") else "right")
    whole = megabytes(next(iter(rows.values())))
    for name, row in rows.items():
        cells = (f"{megabytes(row):.4f}", f"{whole / megabytes(row):.1f}", spread(row.final), spread(row.best))
        made.add_row(name, *cells)
    return made


def results(rows: dict[str, Row], given: argparse.Namespace) -> dict[str, object]:
    return {
        "date": datetime.now(UTC).date().isoformat(), "commit": commit(), "scale": scale(given),
        "command": f"python benchmarks/papers/uploads.py --seeds {given.seeds} --rounds {given.rounds}"
        f" --epochs {given.epochs}",
        "megabytes a client and round": {name: megabytes(row) for name, row in rows.items()},
        "test accuracy by seed and round": {
            name: [[record.test_accuracy for record in run.history] for run in row.runs] for name, row in rows.items()
        },
    }  # fmt: skip


def picture(rows: dict[str, Row], out: Path, given: argparse.Namespace) -> None:
    """Accuracy against the bytes uploaded until then, a mark per round, means over seeds."""
    figure, (axis,) = panels(1, 7.2, 4.4)
    for (name, row), colour in zip(rows.items(), COLOURS, strict=False):
        sent = list(accumulate(_mean([[r.bytes_up / MB for r in run.history] for run in row.runs])))
        accuracy = [100 * value for value in row.mean_by_round()]
        axis.plot(sent, accuracy, "-o", color=colour, linewidth=2, markersize=4, label=name)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("uploaded by all clients, MB", color=INK)
    axis.set_ylabel("test accuracy, %", color=INK)
    axis.set_title(f"CIFAR-10: accuracy against uploaded bytes\n{scale(given)}", color=INK, fontsize=8)
    axis.legend(frameon=False, labelcolor=INK, fontsize=8)
    save(figure, out / "uploads")


def _mean(runs: Sequence[Sequence[float]]) -> list[float]:
    return [sum(values) / len(values) for values in zip(*runs, strict=True)]


def main(arguments: list[str] | None = None, settings: dict[str, object] | None = None) -> None:
    """`settings` change the experiment: for a test of this script at another size."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--data-dir", type=Path, help="folder with the data sets; by default FEDFUSE_DATA")
    options.add_argument("--rounds", type=int, default=4)
    options.add_argument("--epochs", type=int, default=4)
    options.add_argument("--size", type=int, default=16)
    options.add_argument("--out", type=Path, default=Path("runs/papers/uploads"))
    given = options.parse_args(arguments)
    if given.data_dir is not None:
        os.environ["FEDFUSE_DATA"] = str(given.data_dir)
    made = experiment(given).with_settings(settings or {})
    formats = algorithms()
    compared = compare(
        made, list(formats.values()), seeds=range(given.seeds), out=given.out, display=Lines(Console(stderr=True))
    )
    rows = dict(zip(formats, compared, strict=True))
    console = Console(record=True, width=130)
    console.print(table(rows, given))
    (given.out / "uploads.json").write_text(json.dumps(results(rows, given), indent=1) + "\n")
    picture(rows, given.out, given)


if __name__ == "__main__":
    main()
