"""`run` and `compare`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedfuse.commands.completion import algorithms
from fedfuse.commands.defaults import TRACKERS
from fedfuse.commands.options import (
    AlgorithmName,
    DataDir,
    ExperimentName,
    Json,
    Quiet,
    Rounds,
    Set,
    Target,
    WithReport,
    WorkerCount,
    dotted_settings,
    importing,
    look_in,
    out,
    out_path,
    shown,
)
from fedfuse.commands.reporting import report_at_end
from fedfuse.errors import FedfuseError

if TYPE_CHECKING:
    from fedfuse.config.experiment import Experiment
    from fedfuse.runs.display import Display
    from fedfuse.runs.result import Run

app = typer.Typer()

Track = Annotated[
    list[str] | None, typer.Option("--track", help=f"Also log to a tracker: {', '.join(TRACKERS)}. Repeatable.")
]


class Where(StrEnum):
    """Where clients run. The results are bit-identical."""

    LOCAL = "local"
    FLOWER_SIMULATION = "flower-simulation"


@app.command(epilog="Example: `fedfuse run digits -a fedprox -r 10 --set algorithm.mu=0.1`")
def run(
    experiment: ExperimentName,
    algorithm: AlgorithmName = None,
    rounds: Rounds = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random draws; by default the experiment's.")] = None,
    workers: WorkerCount = None,
    engine: Annotated[
        Where, typer.Option(help="Run clients in processes on this machine, or on Ray by Flower's simulation.")
    ] = Where.LOCAL,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", parser=out_path, metavar="PATH", help="Run directory; by default one under ./runs."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue after the last finished round.")] = False,
    track: Track = None,
    report: WithReport = True,
    set_: Set = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run one experiment. Its directory holds the records, the models and the last checkpoints."""
    look_in(data_dir)
    with importing():
        from fedfuse.config.experiment import load
        from fedfuse.terminal import tables

    settings = dotted_settings(
        set_, algorithm, run__rounds=rounds, run__seed=seed, run__workers=workers, run__track=track
    )
    with shown(quiet=quiet, as_json=as_json) as display:
        result = _run_on_engine(load(experiment, settings), engine, out_dir, resume, display)
    if not quiet and not as_json:
        out.print(tables.of_run(result))
    if report:
        report_at_end(result.path, quiet=quiet, as_json=as_json)


def _run_on_engine(experiment: Experiment, engine: Where, path: Path | None, resume: bool, display: Display) -> Run:
    with importing():
        from fedfuse.runs.run import run as run_experiment

    if engine is Where.LOCAL:
        return run_experiment(experiment, path, resume=resume, display=display)
    try:
        with importing():
            from fedfuse.flower.simulation import simulate
    except ImportError as error:
        raise FedfuseError(
            f"--engine {engine.value} needs Flower ({error}): pip install 'fedfuse[flower-simulation]'"
        ) from error
    return simulate(experiment, path, resume=resume, display=display)


@app.command(epilog="Example: `fedfuse compare digits -a fedavg -a fedprox --seeds 3 --target 0.85`")
def compare(
    experiment: ExperimentName,
    algorithm: Annotated[
        list[str],
        typer.Option(
            "--algorithm",
            "-a",
            help="Algorithm, optionally with settings, as in `fedprox(mu=0.1)`. Repeatable.",
            autocompletion=algorithms,
        ),
    ],
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of consecutive seeds, starting at the experiment's own.")
    ] = 1,
    target: Target = None,
    rounds: Rounds = None,
    workers: WorkerCount = None,
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "--out",
            parser=out_path,
            metavar="PATH",
            help="Directory for all runs, by default under ./runs; finished runs in it are kept.",
        ),
    ] = None,
    track: Track = None,
    report: WithReport = True,
    set_: Set = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run several algorithms on the same partition, cohorts and initial weights. Repeat the command to continue."""
    look_in(data_dir)
    with importing():
        from fedfuse.config.experiment import load
        from fedfuse.runs.compare import compare as run_comparison
        from fedfuse.runs.compare import default_folder
        from fedfuse.terminal import objects, tables

    base = load(experiment, dotted_settings(set_, run__rounds=rounds, run__workers=workers, run__track=track))
    folder = out_dir or default_folder(base)
    numbers = range(base.run.seed, base.run.seed + seeds)
    with shown(quiet=quiet, as_json=as_json) as display:
        rows = run_comparison(base, algorithm, seeds=numbers, out=folder, display=display)
    if as_json:
        objects.print_objects(out, objects.of_comparison(rows, target))
    elif not quiet:
        out.print(tables.of_comparison(base, rows, target, folder))
    if report:
        report_at_end(folder, target, quiet=quiet, as_json=as_json)
