"""Continue a run of FedAvg, and measure each round's average also with the batch-norm statistics of its last client.

    python benchmarks/papers/released_statistics.py FEDAVG
    python benchmarks/papers/released_statistics.py FEDAVG --beside FEDDF [--target 80] [--out DIR]

FedDF's released FedAvg keeps those statistics. They do not enter training, so the weights of both are the same in every
round, and hundreds of local steps leave nothing of the statistics that a client starts with: one run measures both.
FEDAVG is the directory of an unfinished run of `fedavg`, which continues until its last round or Ctrl-C;
`released.jsonl` in it gets a line per round. Clients are trained one after the other. With `--beside` nothing is
trained: accuracy over rounds is drawn, beside a run of FedDF, and printed as a table.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from drawing import COLOURS, INK, panels, save
from rich.console import Console
from rich.table import Table
from torch import Tensor

import fedfuse
from fedfuse.algorithm import Algorithm
from fedfuse.config.experiment import Experiment
from fedfuse.context import Context
from fedfuse.data.federation import Federation
from fedfuse.engines import Engine, InProcess
from fedfuse.evaluate import evaluate
from fedfuse.records import checkpoint
from fedfuse.records.directory import CHECKPOINTS, EXPERIMENT
from fedfuse.records.observer import RunInfo
from fedfuse.records.record import RoundRecord
from fedfuse.records.stored import StoredRun
from fedfuse.runs.progress import Lines
from fedfuse.runs.run import run
from fedfuse.types import Failure, FedfuseError, ServerState, Snapshot, Task, Update, model_of

FILE = "released.jsonl"
Series = Mapping[int, float]  # test accuracy by round


class KeepsLast(InProcess):
    """Trains clients in this process and keeps the last model of each round, which `Released` then evaluates."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Snapshot | None = None
        self.ctx: Context | None = None

    def run(
        self, algorithm: Algorithm, tasks: Iterable[Task], ctx: Context, server: ServerState | None = None
    ) -> Iterator[Update | Failure]:
        self.ctx = ctx
        for answer in super().run(algorithm, tasks, ctx, server):
            if isinstance(answer, Update):
                self.last = model_of(answer, "FedAvg averages models")
            yield answer


class Released:
    """After each round, evaluates the average with the last client's statistics."""

    def __init__(self, path: Path, engine: KeepsLast) -> None:
        self.path, self.engine = path, engine

    def begin(self, run: RunInfo, history: Sequence[RoundRecord]) -> None:
        pass

    def round(self, record: RoundRecord) -> None:
        if record.test_accuracy is None:  # a round that is not evaluated
            return
        last, ctx = self.engine.last, self.engine.ctx
        assert last is not None
        assert ctx is not None
        average = checkpoint.model(self.path / CHECKPOINTS, last.arch)
        assert average is not None
        released = replace(average, buffers=last.buffers)
        accuracy = [evaluate(ctx.nets.load(model), ctx.data.test).accuracy for model in (average, released)]
        if accuracy[0] != record.test_accuracy:
            raise SystemExit(f"round {record.round}: the checkpoint is not that of the record")
        line = {"round": record.round, "averaged": accuracy[0], "last client's": accuracy[1]}
        with (self.path / FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def end(self, history: Sequence[RoundRecord]) -> None:
        pass


def proceed(path: Path) -> None:
    """Continue the run."""
    experiment = fedfuse.load(path / EXPERIMENT)
    if experiment.algorithm.name != "fedavg":
        raise FedfuseError(f"{path} is a run of {experiment.algorithm.name}: give one of fedavg")
    engine = KeepsLast()

    def engines(experiment: Experiment, federation: Federation, path: Path) -> tuple[Engine, Tensor | None]:
        return engine, None

    run(
        experiment,
        path,
        resume=True,
        display=Lines(Console(stderr=True)),
        engines=engines,
        observers=[Released(path, engine)],
    )


def series(fedavg: Path, feddf: Path) -> dict[str, Series]:
    """Return what is compared, in the rounds that both runs have."""
    average, student = StoredRun.open(fedavg).history, StoredRun.open(feddf).history
    rounds = min(len(average), len(student))
    lines = [json.loads(line) for line in (fedavg / FILE).read_text(encoding="utf-8").splitlines()]
    return {
        "FedAvg, last client's statistics": {
            line["round"]: line["last client's"] for line in lines if line["round"] <= rounds
        },
        "FedAvg, averaged statistics": _accuracy(average[:rounds]),
        "FedDF": _accuracy(student[:rounds]),
        "FedDF's ensemble": {
            record.round: record.facts.ensemble.accuracy
            for record in student[:rounds]
            if record.facts.ensemble is not None and record.facts.ensemble.accuracy is not None
        },
    }


def _accuracy(history: Sequence[RoundRecord]) -> Series:
    return {record.round: record.test_accuracy for record in history if record.test_accuracy is not None}


def draw(lines: Mapping[str, Series], target: float | None, path: Path) -> None:
    """Draw accuracy over rounds, a line for each series; target: an accuracy in percent that is marked."""
    figure, (axis,) = panels(1, 7.2, 4.4)
    styles = ((COLOURS[0], ":"), (COLOURS[0], "-"), (COLOURS[1], "-"), (COLOURS[2], "--"))
    for (name, values), (colour, style) in zip(lines.items(), styles, strict=True):
        axis.plot(
            list(values), [100 * value for value in values.values()], style, color=colour, linewidth=2, label=name
        )
    if target is not None:
        axis.axhline(target, color=INK, linewidth=0.8, linestyle=(0, (4, 4)))
    axis.set_xlabel("round", color=INK)
    axis.set_ylabel("test accuracy, %", color=INK)
    axis.legend(frameon=False, labelcolor=INK, fontsize=8, loc="lower right")
    save(figure, path)


def table(lines: Mapping[str, Series]) -> Table:
    """Return accuracies in percent, a row for each round."""
    shown = Table(*("round", *lines), title="Test accuracy, %")
    for number in sorted({number for values in lines.values() for number in values}):
        cells = (f"{100 * values[number]:.1f}" if number in values else "" for values in lines.values())
        shown.add_row(str(number), *cells)
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fedavg", type=Path, metavar="FEDAVG", help="directory of a run of FedAvg")
    parser.add_argument("--beside", type=Path, metavar="FEDDF", help="directory of a run of FedDF: train nothing, draw")
    parser.add_argument("--target", type=float, help="accuracy in percent that the picture marks")
    parser.add_argument("--out", type=Path, default=Path("runs/papers"), metavar="DIR", help="folder of the picture")
    given = parser.parse_args(arguments)
    try:
        if given.beside is None:
            proceed(given.fedavg)
            return
        lines = series(given.fedavg, given.beside)
    except KeyboardInterrupt:
        raise SystemExit("stopped; every finished round is on disk: give the same command again") from None
    except (FedfuseError, OSError) as error:
        raise SystemExit(f"error: {error}") from None
    Console().print(table(lines))
    draw(lines, given.target, given.out / "released-statistics")


if __name__ == "__main__":
    main()
