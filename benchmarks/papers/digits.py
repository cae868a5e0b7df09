"""FedDF and FedBE against FedAvg on real digits: mean accuracy over the rounds, and rounds to 85 %.

    python benchmarks/papers/digits.py [--seeds 5] [--rounds 20] [--out DIR]

scikit-learn's digits, 10 clients, Dirichlet 0.1, 4 clients a round, 20 local epochs, perceptron 64-32; 20 % of the
training data are the unlabeled pool. A run that was stopped goes on where it was. Writes a table and the curves of
the mean accuracy over the seeds (PNG and SVG).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from drawing import curves
from fedfuse.terminal.progress import Lines
from rich.console import Console

import fedfuse
from fedfuse.records.statistics import Row
from fedfuse.runs.compare import compare
from fedfuse.terminal import tables

# The pool has 259 examples, 2 batches an epoch: FedBE's 20 epochs would end before SWA collects its first model.
# Its schedule keeps the paper's shape (collecting after a sixth of the steps) over 300 steps; a flipped digit is none.
ALGORITHMS = {
    "FedAvg": "fedavg",
    "FedDF": "feddf",
    "FedBE": 'fedbe(epochs=150, lr=0.01, swa_start=50, augment="none")',
}
TARGET = 0.85


def run(out: Path, seeds: int, rounds: int) -> list[Row]:
    experiment = fedfuse.load("digits", {"run.rounds": rounds})
    return compare(
        experiment,
        list(ALGORITHMS.values()),
        seeds=range(seeds),
        out=out / "runs",
        display=Lines(Console(stderr=True)),
    )


def picture(rows: list[Row], out: Path, seeds: int) -> None:
    lines = {
        name: [[record.test_accuracy for record in run.history] for run in row.runs]
        for name, row in zip(ALGORITHMS, rows, strict=True)
    }
    curves(lines, out / "digits", f"digits, Dirichlet 0.1, 4 of 10 clients, mean of {seeds} seeds", target=TARGET)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--out", type=Path, default=Path("runs/papers/digits"))
    given = options.parse_args()
    rows = run(given.out, given.seeds, given.rounds)
    console = Console(record=True, width=130)
    console.print(tables.of_comparison(fedfuse.load("digits", {"run.rounds": given.rounds}), rows, TARGET, given.out))
    (given.out / "digits.txt").write_text(console.export_text())
    picture(rows, given.out, given.seeds)


if __name__ == "__main__":
    main()
