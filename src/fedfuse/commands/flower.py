"""`flower up`: a federation on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from fedfuse.commands import machines
from fedfuse.commands.options import (
    AlgorithmName,
    DataDir,
    ExperimentName,
    Rounds,
    Set,
    WithReport,
    dotted_settings,
    importing,
    look_in,
    out,
    out_path,
    shown,
)
from fedfuse.commands.reporting import report_at_end
from fedfuse.errors import FedfuseError

app = typer.Typer(
    no_args_is_help=True, help="Run an experiment on Flower, with real nodes, TLS and node authentication."
)


EXAMPLES: dict[Callable[..., None], str] = {
    machines.init: "fedfuse flower init --server fl.example.org --node hospital-a --node hospital-b",
    machines.start: "fedfuse flower start",
    machines.check: "fedfuse flower check",
    machines.register: "fedfuse flower register",
    machines.run: "fedfuse flower run --resume",
    machines.status: "fedfuse flower status",
    machines.add: "fedfuse flower add hospital-c --to federation",
    machines.renew: "fedfuse flower renew federation/server --authority federation/authority",
}


@app.command(epilog="Example: `fedfuse flower up digits --nodes 3 -a scaffold -r 3`")
def up(
    experiment: ExperimentName,
    nodes: Annotated[
        int, typer.Option(min=1, help="Number of SuperNodes, one client each. Sets `partition.clients`.")
    ] = 3,
    algorithm: AlgorithmName = None,
    rounds: Rounds = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random draws; by default the experiment's.")] = None,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", parser=out_path, metavar="PATH", help="Run directory; by default one under ./runs."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue after the last finished round.")] = False,
    timeout: Annotated[
        float, typer.Option(min=1, help="Timeout for the nodes' replies in a round, in seconds.")
    ] = 600.0,
    wait: Annotated[
        float, typer.Option(min=1, help="Timeout for all nodes to connect at the start, in seconds.")
    ] = 300.0,
    report: WithReport = True,
    set_: Set = None,
    data_dir: DataDir = None,
) -> None:
    """Start a SuperLink and SuperNodes on this machine, run the experiment on them, and stop them.

    All nodes take part in each round; `--set run.fraction=0.5` asks half of them.
    """
    try:
        with importing():
            from fedfuse.config.experiment import load
            from fedfuse.flower.loopback.up import up as bring_up
            from fedfuse.flower.server import Deployment
            from fedfuse.runs.run import Run, default_path
            from fedfuse.terminal import tables
    except ImportError as error:
        raise FedfuseError(f"`fedfuse flower up` needs Flower ({error}): pip install 'fedfuse[flower]'") from error
    look_in(data_dir)
    # An experiment's own fraction is of its own number of clients: of two nodes it would leave one.
    everyone = {"run.fraction": 1.0}
    settings = dotted_settings(set_, algorithm, run__rounds=rounds, run__seed=seed, partition__clients=nodes)
    definition = load(experiment, {**everyone, **settings})
    path = (out_dir or default_path(definition, resume)).resolve()
    with shown() as display:
        history = bring_up(definition, path, Deployment(str(path), resume, timeout, wait, start=nodes), display)
    out.print(tables.of_run(Run(path, history, {})))
    if report:
        report_at_end(path)


for command, example in EXAMPLES.items():
    app.command(epilog=f"Example: `{example}`")(command)
