"""What Flower's simulation costs: `--engine flower-simulation` against one process and two workers. Interleaved.

    unshare --net sh -c 'ip link set lo up && python benchmarks/flower/simulation.py [--rounds 6] [--repeats 3]'

Scale: FedAvg on digits with 10 clients, 2 processes for clients, one machine. Each run is `fedfuse run` in a process
of its own. A round's seconds are the median of its records without the first round, in which processes are still
importing PyTorch; the start is the rest of the command's time. Memory is the peak of the sum over the command and all
its descendants, shared pages counted once (PSS), looked at five times a second. Ratios are to one process, by repeat.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

WAYS = {
    "one process": ["--workers", "1"],
    "2 workers": ["--workers", "2"],
    "flower-simulation": ["--workers", "2", "--engine", "flower-simulation"],
}


@dataclass(frozen=True)
class Cost:
    start: float  # seconds
    round: float  # seconds
    memory: float  # MB
    model: bytes


def tree(root: int) -> list[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = defaultdict(list)
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        children[parent].append(int(place.name))
    pids = [root]
    for pid in pids:
        pids.extend(children[pid])
    return pids


def megabytes(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total * 1024 / 1e6


def measured(way: list[str], rounds: int, folder: Path) -> Cost:
    program = str(Path(sys.executable).parent / "fedfuse")
    fixed = ["--set", "partition.clients=10", "-r", str(rounds), "--no-report", "--out", str(folder)]
    start, peak = monotonic(), 0.0
    process = subprocess.Popen(
        [program, "run", "digits", *fixed, *way], env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL
    )
    while process.poll() is None:
        peak = max(peak, megabytes(tree(process.pid)))
        sleep(0.2)
    total = monotonic() - start
    assert process.returncode == 0
    records = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    each = [sum(record["seconds"].values()) for record in records]
    (model,) = (folder / "models").glob("*.safetensors")
    return Cost(total - sum(each[1:]), statistics.median(each[1:]), peak, model.read_bytes())


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=6)
    options.add_argument("--repeats", type=int, default=3)
    given = options.parse_args()
    costs: dict[str, list[Cost]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(given.repeats):
            for name, way in WAYS.items():
                costs[name].append(measured(way, given.rounds, Path(folder) / f"{repeat} {name}"))
    assert len({cost.model for each in costs.values() for cost in each}) == 1, "the bits differ"
    base = costs["one process"]
    print("| engine | seconds per round | ratio | start, seconds | peak memory, MB | ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, each in costs.items():
        slower = statistics.median(cost.round / one.round for cost, one in zip(each, base, strict=True))
        larger = statistics.median(cost.memory / one.memory for cost, one in zip(each, base, strict=True))
        round_, start, memory = (
            statistics.median(getattr(cost, what) for cost in each) for what in ("round", "start", "memory")
        )
        print(f"| {name} | {round_:.3f} | {slower:.2f} | {start:.1f} | {memory:.0f} | {larger:.1f} |")


if __name__ == "__main__":
    main()
