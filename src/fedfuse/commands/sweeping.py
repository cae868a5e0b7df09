"""`sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedfuse.commands.options import (
    AlgorithmName,
    DataDir,
    ExperimentName,
    Json,
    Quiet,
    Rounds,
    Set,
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

app = typer.Typer()


@app.command(
    epilog="Example: `fedfuse sweep digits --param local.lr=0.01..1:log --param local.epochs=1,5,20 --trials 20`"
)
def sweep(
    experiment: ExperimentName,
    param: Annotated[
        list[str],
        typer.Option(
            "--param",
            "-p",
            metavar="KEY=VALUES",
            help="Key and values to search, repeatable: "
            "`local.lr=0.01..1:log`, `local.epochs=1..20`, `algorithm.name=fedavg,feddf`.",
        ),
    ],
    trials: Annotated[int, typer.Option(min=1, help="Total number of trials, including those in the directory.")] = 20,
    algorithm: AlgorithmName = None,
    rounds: Rounds = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the proposals; runs use the experiment's seed.")] = 0,
    seeds: Annotated[
        int, typer.Option(min=1, help="Runs per trial, with consecutive seeds; their mean accuracy counts.")
    ] = 1,
    prune: Annotated[
        bool, typer.Option("--prune/--no-prune", help="End trials early if they are below the median.")
    ] = True,
    startup_trials: Annotated[int, typer.Option(min=0, help="Complete trials before any trial is pruned.")] = 5,
    warmup_rounds: Annotated[
        int | None, typer.Option(min=0, help="Rounds before a trial can be pruned; by default a quarter of its rounds.")
    ] = None,
    workers: WorkerCount = None,
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "--out",
            parser=out_path,
            metavar="PATH",
            help="Directory for all trials, by default under ./runs; finished trials in it are kept.",
        ),
    ] = None,
    report: WithReport = True,
    set_: Set = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Search for the best settings by validation accuracy, with Optuna. Repeat the command to continue."""
    look_in(data_dir)
    with importing():
        from fedfuse.config.experiment import load
        from fedfuse.sweeps.search import Median
        from fedfuse.sweeps.search import sweep as search
        from fedfuse.sweeps.space import parse_space
        from fedfuse.terminal import objects, sweeps

    space = parse_space(param)
    if algorithm is not None and "algorithm.name" in space:
        raise FedfuseError(f"--algorithm {algorithm}: algorithm.name is searched by --param; leave one of them out")
    base = load(experiment, dotted_settings(set_, algorithm, run__rounds=rounds, run__workers=workers))
    median = Median(startup_trials, warmup_rounds) if prune else None
    with shown(quiet=quiet, as_json=as_json) as display:
        result = search(base, space, trials=trials, out=out_dir, seed=seed, seeds=seeds, prune=median, display=display)
    if as_json:
        objects.print_objects(out, objects.of_sweep(result))
    elif not quiet:
        out.print(sweeps.of_sweep(result))
        command = ["fedfuse", "run", experiment]
        command += [] if algorithm is None else ["-a", algorithm]
        command += [] if rounds is None or "run.rounds" in space else ["-r", str(rounds)]
        others = [pair for pair in set_ or [] if pair.partition("=")[0].strip() not in space]
        command += [word for pair in others for word in ("--set", pair)]
        command += [] if data_dir is None else ["--data-dir", str(data_dir)]
        out.print(sweeps.again(result.best, command), soft_wrap=True)  # on one line, so that it can be copied
    if report:
        report_at_end(result.path, quiet=quiet, as_json=as_json)
