"""A round over Flower: fedfuse's FedAvg against Flower's own FedAvg strategy. Interleaved in one run.

    python benchmarks/flower/overhead.py [--megabytes 1 50] [--nodes 3] [--rounds 3] [--repeats 2]

Both sides train the same net on as many examples for one step, so what is left is the way to the nodes and back and
the average. For each size they take turns on one federation on loopback: a SuperLink and SuperNodes over TLS, with
node authentication. The first round of a run is not counted: nodes fetch the app then. Memory is the peak of each
process (VmHWM); that of those which outlast a run is set back before each.

A run with more ClientApps than it needs says that the machine was too busy: Flower starts an app again that has not
reported within 30 s, and the round takes as much longer. Such a run says nothing about either side: repeat it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from math import isqrt
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep

import tomli_w
import torch

import fedfuse
from fedfuse.flower import Deployment
from fedfuse.flower.loopback.federation import CONNECTION, LINK, Loopback, loopback
from fedfuse.flower.loopback.up import submit
from fedfuse.runs.display import Silent
from fedfuse.types import FedfuseError

EXAMPLES, FEATURES, CLASSES = 64, 64, 10  # of each client
LONGEST = 900.0  # seconds for one run of one side
OURS, PLAIN = "fedfuse", "plain Flower"
STAGES = ("local", "fuse", "evaluate", "checkpoint")  # of our records; "local" is the way there and back too
PARTIES = ("SuperLink", "ServerApp", "SuperNode", "ClientApp")

PLAIN_SERVER = '''
import json
import time
from pathlib import Path

from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from net import net

app = ServerApp()


class Timed(FedAvg):
    """Flower's strategy, with the time at which each round begins and its average is there."""

    def __init__(self, **options):
        super().__init__(**options)
        self.begun, self.ended = [], []

    def configure_train(self, *arguments):
        self.begun.append(time.perf_counter())
        return super().configure_train(*arguments)

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        assert len(replies) == self.min_train_nodes
        assert not any(reply.has_error() for reply in replies), [r.error for r in replies if r.has_error()]
        averaged = super().aggregate_train(server_round, replies)
        self.ended.append(time.perf_counter())
        return averaged


@app.main()
def main(grid, context):
    nodes = context.run_config["nodes"]
    strategy = Timed(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
    strategy.start(grid, ArrayRecord(net().state_dict()), num_rounds=context.run_config["rounds"])
    seconds = [end - begin for begin, end in zip(strategy.begun, strategy.ended, strict=True)]
    Path(context.run_config["out"]).write_text(json.dumps(seconds))
'''

PLAIN_CLIENT = """
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from net import CLASSES, EXAMPLES, FEATURES, net

app = ClientApp()


@app.train()
def train(message, context):
    torch.set_num_threads(1)
    model = net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    draw = torch.Generator().manual_seed(context.node_config["partition-id"])
    x = torch.randn(EXAMPLES, FEATURES, generator=draw)
    y = torch.randint(CLASSES, (EXAMPLES,), generator=draw)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    answer = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": EXAMPLES})}
    return Message(RecordDict(answer), reply_to=message)
"""

PLAIN_NET = """
from torch import nn

EXAMPLES, FEATURES, CLASSES = {examples}, {features}, {classes}


def net():
    sizes = [FEATURES, {width}, {width}]
    layers = [part for i, o in zip(sizes, sizes[1:]) for part in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear({width}, CLASSES))
"""


def width_of(megabytes: float) -> int:
    """Of two hidden layers, so that all parameters in float32 are about this large."""
    parameters, around = round(megabytes * 1e6 / 4), FEATURES + CLASSES + 2
    return (isqrt(around**2 + 4 * parameters) - around) // 2


def experiment(width: int, nodes: int, rounds: int) -> fedfuse.Experiment:
    data = {"source": "synthetic", "examples": nodes * EXAMPLES, "shape": [FEATURES], "classes": CLASSES}
    return fedfuse.Experiment(
        name="overhead",
        data={**data, "validation": 0.0},
        partition={"scheme": "iid", "clients": nodes},
        models=f"mlp:{width}-{width}",
        local={"steps": 1, "batch_size": EXAMPLES, "lr": 0.1},
        run={"rounds": rounds, "workers": 1, "quorum": nodes},
    )


def write_plain(folder: Path, width: int) -> None:
    folder.mkdir(parents=True)
    net = PLAIN_NET.format(width=width, examples=EXAMPLES, features=FEATURES, classes=CLASSES)
    for name, text in {"server_app": PLAIN_SERVER, "client_app": PLAIN_CLIENT, "net": net}.items():
        (folder / f"{name}.py").write_text(text)
    parts = {"serverapp": "server_app:app", "clientapp": "client_app:app"}
    app = {"publisher": "fedfuse", "components": parts, "config": {"out": "", "rounds": 0, "nodes": 0}}
    project = {"name": "plain", "version": "1.0.0", "license": "Apache-2.0", "dependencies": []}
    (folder / "pyproject.toml").write_text(tomli_w.dumps({"project": project, "tool": {"flwr": {"app": app}}}))


def run_ours(federation: Loopback, made: fedfuse.Experiment, out: Path) -> list[dict[str, float]]:
    """Seconds of each round, by stage."""
    records = submit(made, out, federation, Deployment(str(out), timeout=LONGEST, wait=LONGEST), Silent())
    assert not any(record.rejected or record.note for record in records), records
    return [{stage: record.seconds.get(stage, 0.0) for stage in STAGES} for record in records]


def run_plain(federation: Loopback, app: Path, nodes: int, rounds: int, out: Path) -> list[dict[str, float]]:
    config = f'out="{out}" rounds={rounds} nodes={nodes}'
    federation.processes.start("plain", ["flwr", "run", str(app), CONNECTION, "--stream", "--run-config", config])
    deadline = monotonic() + LONGEST
    try:
        while federation.processes.ended("plain") is None and monotonic() < deadline:
            federation.processes.must_run(LINK)
            sleep(0.5)
        if not out.exists():
            raise FedfuseError(f"plain Flower did not finish:\n{federation.processes.tail('plain')}")
    finally:
        federation.processes.stop("plain")
    return [{"round": seconds} for seconds in json.loads(out.read_text())]


class Watch:
    """Peak memory (MB) of a federation's parties while a run goes on, and the processor time of each node's app (s).

    Apps are the children of the processes that run them: one for the server, one for each message to a node.
    """

    def __init__(self, federation: Loopback) -> None:
        pid, nodes = federation.processes.pid, [f"node-{k}" for k in range(federation.nodes)]
        self._lasting = {pid(LINK): "SuperLink", **{pid(node): "SuperNode" for node in nodes}}
        self._parents = {pid(f"{LINK}-apps"): "ServerApp", **{pid(f"{node}-apps"): "ClientApp" for node in nodes}}
        self._before = {app for app, _ in self._apps()}  # those of earlier runs
        self.peaks: dict[str, float] = defaultdict(float)
        self.processor: dict[int, float] = {}
        self._stop = Event()

    def __enter__(self) -> Watch:
        for pid in self._lasting:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            apps = [(pid, party) for pid, party in self._apps() if pid not in self._before]
            for pid, party in [*self._lasting.items(), *apps]:
                self.peaks[party] = max(self.peaks[party], peak(pid))
            for pid in (pid for pid, party in apps if party == "ClientApp"):
                self.processor[pid] = max(self.processor.get(pid, 0.0), processor(pid))

    def _apps(self) -> Iterator[tuple[int, str]]:
        for parent, party in self._parents.items():
            for thread in Path(f"/proc/{parent}/task").glob("*/children"):
                yield from ((int(child), party) for child in read(thread).split())


def read(file: Path) -> str:
    """Nothing of a process that has ended."""
    try:
        return file.read_text()
    except OSError:
        return ""


def peak(pid: int) -> float:
    match = re.search(r"VmHWM:\s+(\d+) kB", read(Path(f"/proc/{pid}/status")))
    return int(match[1]) * 1024 / 1e6 if match else 0.0


def processor(pid: int) -> float:
    fields = read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


@dataclass
class Side:
    """What was measured of one side: each round's seconds by stage, and what its processes took."""

    rounds: list[dict[str, float]] = field(default_factory=list)
    peaks: list[dict[str, float]] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def cells(self) -> dict[str, float]:
        own = [sum(each.get(stage, 0.0) for stage in STAGES if stage != "local") for each in self.rounds]
        return {
            "s per round": statistics.median(sum(each.values()) for each in self.rounds),
            "at the server, s": statistics.median(own),  # told apart by our records alone
            "ClientApp, CPU s": statistics.median(self.processor),
            **{f"{party}, MB": max(peaks[party] for peaks in self.peaks) for party in PARTIES},
        }


def measure(megabytes: float, nodes: int, rounds: int, repeats: int) -> dict[str, Side]:
    width, made = width_of(megabytes), experiment(width_of(megabytes), nodes, rounds)
    sides = {OURS: Side(), PLAIN: Side()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        write_plain(folder / "app", width)
        with loopback(folder / "federation", nodes, Silent()) as up:
            for turn in range(2 * repeats):
                name, out = (OURS, PLAIN)[turn % 2], folder / f"turn-{turn}"
                with Watch(up) as watch:
                    if name == OURS:
                        result = run_ours(up, made, out)
                    else:
                        result = run_plain(up, folder / "app", nodes, rounds, out)
                sides[name].rounds += result[1:]
                sides[name].peaks.append(watch.peaks)
                worked = [seconds for seconds in watch.processor.values() if seconds > 1]  # not a fork on its way
                sides[name].processor += worked
                taken = [round(sum(each.values()), 1) for each in result]
                apps, needed = len(worked), nodes * (rounds + (name == OURS))  # ours asks who is there first
                load = os.getloadavg()[1]
                print(
                    f"{megabytes:g} MB, {name}: {taken} s a round, {apps} ClientApps of {needed}, load {load:.0f}",
                    flush=True,
                )
    return sides


def table(megabytes: float, sides: dict[str, Side]) -> str:
    ours, plain = sides[OURS].cells(), sides[PLAIN].cells()
    lines = [f"| {megabytes:g} MB | {OURS} | {PLAIN} | ratio |", "| --- | --- | --- | --- |"]
    for key, mine in ours.items():
        digits = 0 if key.endswith("MB") else 1
        ratio = f"{mine / plain[key]:.2f}" if plain[key] else ""
        lines.append(f"| {key} | {mine:.{digits}f} | {plain[key]:.{digits}f} | {ratio} |")
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--megabytes", type=float, nargs="+", default=[1.0, 50.0], help="sizes of the model")
    options.add_argument("--nodes", type=int, default=3)
    options.add_argument("--rounds", type=int, default=3, help="in each run; the first is not counted")
    options.add_argument("--repeats", type=int, default=2, help="runs of each side, in turns")
    given = options.parse_args()
    versions = f"flwr {version('flwr')}, torch {torch.__version__}"
    counted = given.repeats * (given.rounds - 1)
    print(f"{given.nodes} nodes, {counted} rounds a side, {len(os.sched_getaffinity(0))} cores, {versions}", flush=True)
    for size in given.megabytes:
        print(table(size, measure(size, given.nodes, given.rounds, given.repeats)), flush=True)


if __name__ == "__main__":
    main()
