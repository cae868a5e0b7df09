"""CPU time and bytes of every algorithm on digits, as ratios to FedAvg. Algorithms take turns within each seed.

python benchmarks/speed/algorithms.py --rounds 3 --epochs 20
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import fedfuse
from fedfuse.config.overlay import algorithm_settings

ALGORITHMS = (
    "fedavg",
    "fedprox",
    "fedavgm",
    "scaffold",
    "moon",
    "fedma",
    "feddf(steps=300)",
    'fedbe(epochs=100, lr=0.01, swa_start=50, augment="none")',
    "v-distillation",
    "fed-et(lr=0.01, momentum=0.9)",
    "ds-fl",
    "decentralised-logits",
    "fedgkt",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    given = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in ALGORITHMS}
    sent: dict[str, list[float]] = {name: [] for name in ALGORITHMS}
    with tempfile.TemporaryDirectory() as folder:
        measure("fedavg", 0, given, Path(folder) / "first")  # not counted: it pays for imports
        for seed in range(given.seeds):
            for number, name in enumerate(ALGORITHMS):
                cpu, megabytes = measure(name, seed, given, Path(folder) / f"{seed}-{number}")
                seconds[name].append(cpu)
                sent[name].append(megabytes)
                print(f"seed {seed}: {name} {cpu:.2f} s, {megabytes:.2f} MB", flush=True)
    print("| algorithm | CPU s | times FedAvg | MB sent | times FedAvg |\n| --- | ---: | ---: | ---: | ---: |")
    for name in ALGORITHMS:
        ratios = [_ratio(seconds[name], seconds["fedavg"]), _ratio(sent[name], sent["fedavg"])]
        cpu, megabytes = statistics.fmean(seconds[name]), statistics.fmean(sent[name])
        print(f"| `{name}` | {cpu:.2f} | {ratios[0]:.2f} | {megabytes:.2f} | {ratios[1]:.2f} |")


def _ratio(ours: list[float], base: list[float]) -> float:
    return statistics.fmean(a / b for a, b in zip(ours, base, strict=True))


def measure(name: str, seed: int, given: argparse.Namespace, folder: Path) -> tuple[float, float]:
    """Run an algorithm in this process, with one thread. Return its CPU seconds and the megabytes that it sends."""
    settings = {"run.rounds": given.rounds, "run.workers": 1, "run.seed": seed, "local.epochs": given.epochs}
    experiment = fedfuse.load("digits", {**algorithm_settings(name), **settings})
    begin = time.process_time()
    run = fedfuse.run(experiment, folder)
    return time.process_time() - begin, sum(r.bytes_up + r.bytes_down for r in run.history) / 1e6


if __name__ == "__main__":
    main()
