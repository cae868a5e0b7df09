"""One-bit clients (FedDF's Table 4), and accuracy against uploaded bytes for four formats: CIFAR-10, in small.

    python benchmarks/papers/one_bit.py [--seeds 3] [--data-dir FOLDER] [--rounds 4] [--epochs 4] [--out DIR]

Table 4 has 20 clients of which 8 take part, alpha 1, 100 rounds, 20 to 80 local epochs, at 32x32. Here, at a scale for
two cores: 4 of 20 clients, alpha 1 and 0.1, few rounds and epochs, images of 16x16 without augmentation, at most
`steps` distillation steps on `pool` CIFAR-100 images. Clients train one-bit ResNet-8s and upload one bit per weight.
The columns are the paper's: FedAvg of nets with batch norm, with group norm, and FedDF into a full-precision net.

The second part sends ordinary ResNet-8s of FedAvg in each format, alpha 1: differences from the received model where
the format loses something. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from time import perf_counter

from drawing import COLOURS, INK, panels, save
from fedfuse.terminal.progress import Lines
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter
from rich.console import Console
from rich.table import Table

import fedfuse
from fedfuse.packing import UPLOADS
from fedfuse.records.statistics import Row, spread
from fedfuse.runs.compare import compare

ALPHAS = (1.0, 0.1)
PAPER = {20: (44.38, 59.70, 59.49), 40: (43.91, 64.25, 65.49), 80: (47.62, 65.99, 70.27)}  # by local epochs, alpha 1
COLUMNS = ("FedAvg, BN", "FedAvg, GN", "FedDF, BN")
MB = 1e6


def experiment(alpha: float, given: argparse.Namespace) -> fedfuse.Experiment:
    settings = {
        "data.size": given.size,
        "data.pool.size": given.pool,
        "partition.alpha": alpha,
        "models.clients": "resnet8:bn",
        "local.epochs": given.epochs,
        "local.augment": "none",
        "run.rounds": given.rounds,
        "run.fraction": 0.2,
    }
    return fedfuse.load("cifar10", settings)


def one_bit(given: argparse.Namespace) -> list[str]:
    """Table 4's columns."""
    return [
        'fedavg(models.clients="resnet8:bn:1bit")',
        'fedavg(models.clients="resnet8:gn:1bit")',
        f'feddf(models.clients="resnet8:bn:1bit", steps={given.steps}, every=50, patience={given.steps})',
    ]


def formats() -> dict[str, str]:
    """FedAvg of full-precision nets, by upload."""
    lossy = {upload: f'fedavg(local.upload="{upload}", local.upload_of="difference")' for upload in UPLOADS[1:]}
    return {UPLOADS[0]: "fedavg", **lossy}


def scale(given: argparse.Namespace) -> str:
    return (
        f"ResNet-8 at {given.size}x{given.size}, 20 clients, 4 a round, {given.rounds} rounds, {given.epochs} local"
        f" epochs,\n{given.steps} distillation steps, pool of {given.pool:,} CIFAR-100 images, {given.seeds} seeds"
    )


def table(rows: dict[float, list[Row]], given: argparse.Namespace, seconds: float) -> Table:
    made = Table(title="One-bit clients, test accuracy in %", caption=f"{scale(given)}; {seconds / 60:.0f} minutes")
    for column in ("", "alpha", "local epochs", "accuracy", *COLUMNS):
        made.add_column(column, justify="left" if column in ("", "accuracy") else "right")
    for alpha, each in rows.items():
        for what in ("final", "best"):
            cells = [spread(row.final if what == "final" else row.best) for row in each]
            made.add_row("here", f"{alpha:g}", str(given.epochs), what, *cells)
    for epochs, accuracies in PAPER.items():
        made.add_row("paper", "1", str(epochs), "", *(f"{value:.2f}" for value in accuracies))
    return made


def megabytes(row: Row) -> float:
    """What one client uploads in a round, in the mean."""
    return sum(r.bytes_up / len(r.cohort) for r in row.runs[0].history) / len(row.runs[0].history) / MB


def table_of_formats(rows: dict[str, Row], given: argparse.Namespace) -> Table:
    made = Table(title="Uploads, alpha 1, test accuracy in %", caption=scale(given))
    for column in ("what is uploaded", "MB a client and round", "times smaller", "final", "best"):
        made.add_column(column, justify="left" if column.startswith("what") else "right")
    whole = megabytes(next(iter(rows.values())))
    for name, row in rows.items():
        cells = (f"{megabytes(row):.4f}", f"{whole / megabytes(row):.1f}", spread(row.final), spread(row.best))
        made.add_row(name, *cells)
    return made


def picture(rows: dict[str, Row], out: Path, given: argparse.Namespace) -> None:
    """Accuracy against the bytes uploaded until then, a mark per round, means over seeds."""
    figure, (axis,) = panels(1, 7.2, 4.4)
    for number, (name, row) in enumerate(rows.items()):
        sent = list(accumulate(_mean([[r.bytes_up / MB for r in run.history] for run in row.runs])))
        accuracy = [100 * v for v in _mean([[r.test_accuracy for r in run.history] for run in row.runs])]
        colour, style = COLOURS[number % len(COLOURS)], "-o" if number < len(COLOURS) else "--s"
        axis.plot(sent, accuracy, style, color=colour, linewidth=2, markersize=4, label=name)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("uploaded by all clients, MB", color=INK)
    axis.set_ylabel("test accuracy, %", color=INK)
    axis.set_title(f"CIFAR-10, alpha 1: accuracy against uploaded bytes\n{scale(given)}", color=INK, fontsize=8)
    axis.legend(frameon=False, labelcolor=INK, fontsize=8)
    save(figure, out / "one_bit")


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
    options.add_argument("--steps", type=int, default=150)
    options.add_argument("--pool", type=int, default=4_000)
    options.add_argument("--out", type=Path, default=Path("runs/papers/one_bit"))
    given = options.parse_args(arguments)
    if given.data_dir is not None:
        os.environ["FEDFUSE_DATA"] = str(given.data_dir)
    start, seeds = perf_counter(), range(given.seeds)
    display = Lines(Console(stderr=True))

    def compared(alpha: float, algorithms: Sequence[str], folder: str) -> list[Row]:
        made = experiment(alpha, given).with_settings(settings or {})
        return compare(made, algorithms, seeds=seeds, out=given.out / folder, display=display)

    rows = {alpha: compared(alpha, one_bit(given), f"alpha-{alpha:g}") for alpha in ALPHAS}
    uploads = dict(zip(formats(), compared(ALPHAS[0], list(formats().values()), "uploads"), strict=True))
    uploads |= {f"one-bit net, {name}": row for name, row in zip(COLUMNS, rows[ALPHAS[0]], strict=True)}
    console = Console(record=True, width=130)
    console.print(table(rows, given, perf_counter() - start))
    console.print(table_of_formats(uploads, given))
    (given.out / "one_bit.txt").write_text(console.export_text())
    picture(uploads, given.out, given)


if __name__ == "__main__":
    main()
