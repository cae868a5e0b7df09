"""`sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedfuse.commands.options import (
    DataDir,
    ExperimentName,
    Rounds,
    Set,
    WithReport,
    WorkerCount,
    dotted_settings,
    look_in,
    out,
    shown,
)
from fedfuse.commands.reporting import report_at_end
from fedfuse.config.experiment import load
from fedfuse.sweeps.space import parse_space
from fedfuse.terminal.sweeps import again, of_sweep
from fedfuse.types import FedfuseError

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
            help="A key and what to try: `local.lr=0.01..1:log`, `local.epochs=1..20`, `algorithm.name=fedavg,feddf`.",
        ),
    ],
    trials: Annotated[int, typer.Option(min=1, help="How many in all, with those that the directory holds.")] = 20,
    algorithm: Annotated[
        str | None, typer.Option("--algorithm", "-a", help="Algorithm, with settings if you like: `fedprox(mu=0.1)`.")
    ] = None,
    rounds: Rounds = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the proposals; the runs have the experiment's.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Runs per trial, of whose accuracies the mean counts.")] = 1,
    prune: Annotated[bool, typer.Option("--prune/--no-prune", help="End trials that are below the median.")] = True,
    startup_trials: Annotated[int, typer.Option(min=0, help="Complete trials before any is pruned.")] = 5,
    warmup_rounds: Annotated[
        int | None, typer.Option(min=0, help="Rounds in which no trial is pruned; by default a quarter.")
    ] = None,
    workers: WorkerCount = None,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Directory; what is finished there is kept.")] = None,
    report: WithReport = True,
    set_: Set = None,
    data_dir: DataDir = None,
) -> None:
    """Search settings by validation accuracy, with Optuna; the same command again goes on where it stopped."""
    look_in(data_dir)
    space = parse_space(param)
    if algorithm is not None and "algorithm.name" in space:
        raise FedfuseError(f"--algorithm {algorithm}: algorithm.name is searched by --param; leave one of them out")
    base = load(experiment, dotted_settings(set_, algorithm, run__rounds=rounds, run__workers=workers))
    # Here, for Optuna is not installed everywhere, and no other command should wait for it.
    from fedfuse.sweeps.search import Median
    from fedfuse.sweeps.search import sweep as search

    median = Median(startup_trials, warmup_rounds) if prune else None
    with shown() as display:
        found = search(base, space, trials=trials, out=out_dir, seed=seed, seeds=seeds, prune=median, display=display)
    out.print(of_sweep(found))
    command = ["fedfuse", "run", experiment]
    command += [] if algorithm is None else ["-a", algorithm]
    command += [] if rounds is None or "run.rounds" in space else ["-r", str(rounds)]
    command += [word for pair in set_ or [] for word in ("--set", pair) if pair.partition("=")[0].strip() not in space]
    command += [] if data_dir is None else ["--data-dir", str(data_dir)]
    out.print(again(found.best, command), soft_wrap=True)  # one line, however long: it is there to be copied
    if report:
        report_at_end(found.path)
