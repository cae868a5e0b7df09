"""Commands that train nothing: `list`, `show`, `check`, `partition`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedfuse.commands.completion import algorithms
from fedfuse.commands.options import (
    AlgorithmName,
    DataDir,
    ExperimentName,
    Json,
    Set,
    dotted_settings,
    importing,
    look_in,
    out,
)

app = typer.Typer()


@app.command("list", epilog="Example: `fedfuse list`")
def list_(as_json: Json = False) -> None:
    """List all algorithms, their parts, experiments, models, partitions, data sources and pools."""
    with importing():
        from fedfuse.terminal import objects, tables

    if as_json:
        objects.print_objects(out, objects.catalogue())
        return
    for table in tables.catalogue():
        out.print(table)


@app.command(epilog="Example: `fedfuse show fedavgm`, `fedfuse show adam`")
def show(
    name: Annotated[
        str, typer.Argument(help="Name of an algorithm or a part; see `fedfuse list`.", autocompletion=algorithms)
    ],
    as_json: Json = False,
) -> None:
    """Show an algorithm (its paper, its settings, its parts as a tree), or the settings of a part."""
    with importing():
        from fedfuse.terminal import composition, objects

    if as_json:
        objects.print_objects(out, objects.explain(name))
    else:
        out.print(composition.explain(name))


@app.command(epilog="Example: `fedfuse check my.toml -a feddf --set partition.clients=100`")
def check(
    experiment: ExperimentName,
    algorithm: AlgorithmName = None,
    set_: Set = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Validate an experiment without training: keys and values, data, partition, models, algorithm.

    It refuses whatever `run` refuses with the same options.
    """
    look_in(data_dir)
    with importing():
        from fedfuse.config.experiment import load
        from fedfuse.runs.setup import check as check_experiment
        from fedfuse.terminal import objects, tables

    setup = check_experiment(load(experiment, dotted_settings(set_, algorithm)))
    if as_json:
        objects.print_objects(out, objects.of_check(setup.experiment, setup.federation))
    else:
        out.print(tables.of_check(setup.experiment, setup.federation, setup.notes))


@app.command(epilog="Example: `fedfuse partition digits --set partition.alpha=1.0 --picture clients.svg`")
def partition(
    experiment: ExperimentName,
    picture: Annotated[
        Path | None,
        typer.Option(help="Also draw a dot per client and class, sized by its examples: .svg or .png."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the partition; by default the experiment's.")] = None,
    set_: Set = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Show how many examples of each class each client has."""
    look_in(data_dir)
    with importing():
        from fedfuse.config.experiment import load
        from fedfuse.data.picture import draw
        from fedfuse.runs.setup import load_federation
        from fedfuse.terminal import objects, tables

    definition = load(experiment, dotted_settings(set_, run__seed=seed))
    federation = load_federation(definition)
    if as_json:
        objects.print_objects(out, objects.of_partition(federation))
    else:
        out.print(tables.of_partition(definition, federation))
    if picture is not None:
        draw({"": (federation.counts, federation.labels)}, picture, title=tables.partition_title(definition))
        if not as_json:
            out.print(f"picture  {picture}", highlight=False)
