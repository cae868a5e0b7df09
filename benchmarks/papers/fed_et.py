"""Fed-ET on CIFAR-10 beside FedAvg of the large model and FedDF of the small ones: Tables 2, 3 and 4, in small.

    FEDFUSE_DATA=FOLDER python benchmarks/papers/fed_et.py [--rounds 10] [--alpha 0.5] [--target 0.3] [--out DIR]

The paper has 100 clients of which 10 take part, CNN, ResNet-8 and ResNet-18 at the clients, VGG-19 at the server, and
trains until convergence. Here, at a scale for two cores: 20 clients, few rounds, images of 16x16, CNN and ResNet-8 at
the clients, and at the server a VGG-9 of half the widths; ResNet and VGG with group norm, without which they hardly
learn in so few steps. FedAvg trains that VGG at every client, FedDF the two small nets. The table gives the accuracy,
and the parameters that were sent, up and down, until the target was reached: C_acc(x). Fed-ET runs with lambda 0, 0.05
and 0.5. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

from drawing import curves
from fedfuse.terminal.progress import Lines
from rich.console import Console
from rich.table import Table

import fedfuse
from fedfuse.records.statistics import Row
from fedfuse.runs.compare import compare

LARGE = "vgg9:gn:16-32-64-64-128-128-256-256"
SMALL = '{"cnn" = 1, "resnet8:gn" = 1}'
LAMBDAS = (0.05, 0.0, 0.5)


def experiment(given: argparse.Namespace) -> fedfuse.Experiment:
    settings = {
        "data.pool.size": given.pool,
        "data.size": given.size,
        "partition.clients": given.clients,
        "partition.alpha": given.alpha,
        "models.clients": {"cnn": 1, "resnet8:gn": 1},
        "models.server": LARGE,
        "local.steps": given.local_steps,
        "local.lr": 0.02,
        "local.momentum": 0.9,
        "run.rounds": given.rounds,
        "run.fraction": 0.5,
        "run.selection": "proportional",
    }
    return fedfuse.load("cifar10-fed-et", settings)


def algorithms(given: argparse.Namespace) -> dict[str, str]:
    """What the table calls it: how it is said."""
    return {
        "FedAvg of the large model": f'fedavg(models.clients="{LARGE}")',
        "FedDF of the small ones": f"feddf(models.clients={SMALL}, steps={given.steps}, batch_size=64)",
        **{
            f"Fed-ET, lambda {lam:g}": f"fed-et(lam={lam}, steps={given.steps}, lr=0.01, momentum=0.9)"
            for lam in LAMBDAS
        },
    }


def scale(given: argparse.Namespace) -> str:
    return (
        f"CIFAR-10 at {given.size}x{given.size}, Dirichlet {given.alpha:g}, {given.clients} clients, half a round,\n"
        f"{given.rounds} rounds, {given.local_steps} local steps of 64, {given.steps} server steps of 64,\n"
        f"pool of {given.pool:,} changed images, 1 seed"
    )


def table(rows: dict[str, Row], given: argparse.Namespace, seconds: float) -> Table:
    made = Table(title="Fed-ET in small", caption=f"{scale(given)}; {seconds / 60:.0f} minutes")
    made.add_column("algorithm")
    target = f"{100 * given.target:g} %"
    for column in ("best %", "final %", "parameters a round", f"rounds to {target}", f"parameters to {target}"):
        made.add_column(column, justify="right")
    for name, row in rows.items():
        last = row.runs[0].final
        cells = (f"{100 * row.best[0]:.2f}", f"{100 * row.final[0]:.2f}", f"{last.params_up + last.params_down:.3g}")
        made.add_row(name, *cells, row.rounds_to(given.target), row.parameters_to(given.target))
    return made


def main(arguments: list[str] | None = None, settings: dict[str, object] | None = None) -> None:
    """`settings` change the experiment: for a test of this script at another size."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--clients", type=int, default=20)
    options.add_argument("--alpha", type=float, default=0.5)
    options.add_argument("--size", type=int, default=16)
    options.add_argument("--local-steps", type=int, default=100)
    options.add_argument("--steps", type=int, default=128)
    options.add_argument("--pool", type=int, default=4_000)
    options.add_argument("--target", type=float, default=0.3)
    options.add_argument("--out", type=Path, default=Path("runs/papers/fed_et"))
    given = options.parse_args(arguments)
    start = perf_counter()
    said = algorithms(given)
    made = experiment(given).with_settings(settings or {})
    rows = compare(made, list(said.values()), seeds=[0], out=given.out, display=Lines(Console(stderr=True)))
    rows = dict(zip(said, rows, strict=True))
    console = Console(record=True, width=130)
    console.print(table(rows, given, perf_counter() - start))
    (given.out / "fed_et.txt").write_text(console.export_text())
    lines = {name: [[r.test_accuracy for r in run.history] for run in row.runs] for name, row in rows.items()}
    curves(lines, given.out / "fed_et", scale(given), given.target, legend="upper left")


if __name__ == "__main__":
    main()
