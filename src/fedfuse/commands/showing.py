"""What can be looked at before anything runs: `list`, `show`, `check`, `partition`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedfuse.commands.options import DataDir, ExperimentName, Set, dotted_settings, look_in, out
from fedfuse.config.experiment import load
from fedfuse.runs.setup import check as check_experiment
from fedfuse.runs.setup import load_federation
from fedfuse.terminal import tables
from fedfuse.terminal.composition import explain

app = typer.Typer()


@app.command("list", epilog="Example: `fedfuse list`")
def list_() -> None:
    """What there is: algorithms and their parts, experiments, models, partitions, data sources, pools."""
    for table in tables.catalogue():
        out.print(table)


@app.command(epilog="Example: `fedfuse show fedavgm`, `fedfuse show adam`")
def show(name: Annotated[str, typer.Argument(help="An algorithm or a part; see `fedfuse list`.")]) -> None:
    """What an algorithm is made of (its paper, its settings, its parts as a tree), or the settings of a part."""
    out.print(explain(name))


@app.command(epilog="Example: `fedfuse check my.toml --set partition.clients=100`")
def check(experiment: ExperimentName, set_: Set = None, data_dir: DataDir = None) -> None:
    """Validate everything without training: keys and values, data, partition, models, algorithm."""
    look_in(data_dir)
    checked = load(experiment, dotted_settings(set_))
    out.print(tables.of_check(checked, check_experiment(checked).federation))


@app.command(epilog="Example: `fedfuse partition digits --set partition.alpha=1.0 --picture clients.svg`")
def partition(
    experiment: ExperimentName,
    picture: Annotated[
        Path | None, typer.Option(help="Also draw clients x classes, a dot's area being the examples: .svg or .png")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the partition.")] = None,
    set_: Set = None,
    data_dir: DataDir = None,
) -> None:
    """Show how an experiment spreads its examples over clients."""
    from fedfuse.data.picture import draw

    look_in(data_dir)
    chosen = load(experiment, dotted_settings(set_, run__seed=seed))
    federation = load_federation(chosen)
    out.print(tables.of_partition(chosen, federation))
    if picture is not None:
        draw({"": federation.counts}, federation.labels, picture, title=tables.partition_title(chosen))
        out.print(f"picture  {picture}", highlight=False)
