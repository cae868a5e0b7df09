"""The command line. It reads options and prints; everything else is done by the package."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedfuse import rng, tables
from fedfuse.compare import compare as run_comparison
from fedfuse.config import AlgorithmSection
from fedfuse.data.generator import frozen, generated
from fedfuse.data.sources import load as load_source
from fedfuse.display import Display, Lines, Live
from fedfuse.experiment import algorithm_settings, load
from fedfuse.explain import explain
from fedfuse.generators import save_generator
from fedfuse.generators.progress import Steps
from fedfuse.generators.sheet import SAMPLES, check_picture, draw_sheet
from fedfuse.generators.train import Trainer, image_shape
from fedfuse.types import FedfuseError

app = typer.Typer(
    name="fedfuse",
    help="Federated model fusion by ensemble distillation.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
generators = typer.Typer(no_args_is_help=True, help="Train a generator of unlabeled images for a pool, and look at it.")
app.add_typer(generators, name="generator")
# A pipe has no width of its own; rich would take 80 columns and cut tables short.
out = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 110)
err = Console(stderr=True)

ExperimentName = Annotated[
    str, typer.Argument(metavar="EXPERIMENT", help="A built-in name (see `fedfuse list`) or a TOML file.")
]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Folder with data in the hub's layout; beats FEDFUSE_DATA.")
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any key of the experiment: local.lr=0.05")
]
Rounds = Annotated[int | None, typer.Option("--rounds", "-r", help="Number of rounds.")]
WorkerCount = Annotated[int | None, typer.Option("--workers", help="Worker processes; 0 is one per core.")]


def _settings(pairs: list[str] | None, algorithm: str | None = None, **options: Any) -> dict[str, Any]:
    """Dotted keys: the algorithm first, for `--set` may set its settings; options with a name of their own last."""
    settings: dict[str, Any] = {}
    for pair in pairs or []:
        key, equals, text = pair.partition("=")
        if not equals:
            raise FedfuseError(f"--set {pair}: write KEY=VALUE, as in --set local.lr=0.05")
        settings[key.strip()] = _value(text.strip())
    chosen = {} if algorithm is None else algorithm_settings(algorithm)
    named = {key.replace("__", "."): value for key, value in options.items() if value is not None}
    if algorithm is not None:
        named["algorithm.name"] = chosen["algorithm.name"]
    return {**chosen, **settings, **named}


def _value(text: str) -> Any:
    """A TOML value; what is not one is a word, so that names need no quotes."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _at(data_dir: Path | None) -> None:
    if data_dir is not None:
        if not data_dir.is_dir():
            raise FedfuseError(f"--data-dir {data_dir}: there is no such folder")
        os.environ["FEDFUSE_DATA"] = str(data_dir)


@contextmanager
def _display() -> Iterator[Display]:
    with Live(out) if out.is_terminal else nullcontext(Lines(out)) as display:
        try:
            yield display
        except KeyboardInterrupt:  # typer would only say that it was aborted
            err.print("stopped; every finished round is kept: go on with --resume", highlight=False)
            raise typer.Exit(130) from None


@app.command(epilog="Example: `fedfuse run digits -a fedprox -r 10 --set algorithm.mu=0.1`")
def run(
    experiment: ExperimentName,
    algorithm: Annotated[
        str | None, typer.Option("--algorithm", "-a", help="Algorithm, with settings if you like: `fedprox(mu=0.1)`.")
    ] = None,
    rounds: Rounds = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything that is drawn.")] = None,
    workers: WorkerCount = None,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Run directory; by default under ./runs.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on after the last finished round.")] = False,
    set_: Set = None,
    data_dir: DataDir = None,
) -> None:
    """Run one experiment; its directory holds the records, the models and a checkpoint of every round."""
    _at(data_dir)
    settings = _settings(set_, algorithm, run__rounds=rounds, run__seed=seed, run__workers=workers)
    with _display() as display:
        finished = load(experiment, settings).run(out_dir, resume=resume, display=display)
    out.print(tables.of_run(finished))


@app.command(epilog="Example: `fedfuse compare digits -a fedavg -a fedprox --seeds 3 --target 0.85`")
def compare(
    experiment: ExperimentName,
    algorithm: Annotated[
        list[str],
        typer.Option(
            "--algorithm", "-a", help="An algorithm; give several. Settings go in brackets: `fedprox(mu=0.1)`."
        ),
    ],
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, from the experiment's own on.")] = 1,
    target: Annotated[float | None, typer.Option(help="Accuracy to count rounds and parameters to.")] = None,
    rounds: Rounds = None,
    workers: WorkerCount = None,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Directory; what is finished there is kept.")] = None,
    set_: Set = None,
    data_dir: DataDir = None,
) -> None:
    """Run several algorithms on the same partition, cohorts and initial weights; goes on where it stopped."""
    _at(data_dir)
    base = load(experiment, _settings(set_, run__rounds=rounds, run__workers=workers))
    folder = out_dir or Path("runs") / f"compare-{base.name}"
    numbers = range(base.run_.seed, base.run_.seed + seeds)
    with _display() as display:
        rows = run_comparison(base, algorithm, numbers, folder, display)
    out.print(tables.of_comparison(base, rows, target, folder))


@app.command("list", epilog="Example: `fedfuse list`")
def list_() -> None:
    """What there is: algorithms, experiments, models, partitions, data sources, pools."""
    for table in tables.catalogue():
        out.print(table)


@app.command(epilog="Example: `fedfuse show fedavgm`")
def show(algorithm: Annotated[str, typer.Argument(help="An algorithm; see `fedfuse list`.")]) -> None:
    """What an algorithm is made of: its paper, its settings, and its parts as a tree."""
    section = AlgorithmSection(name=algorithm)
    out.print(explain(algorithm, section.function(), section.build()))


@app.command(epilog="Example: `fedfuse check my.toml --set partition.clients=100`")
def check(experiment: ExperimentName, set_: Set = None, data_dir: DataDir = None) -> None:
    """Validate everything without training: keys and values, data, partition, models, algorithm."""
    _at(data_dir)
    checked = load(experiment, _settings(set_))
    out.print(tables.of_check(checked, checked.check()))


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

    _at(data_dir)
    shown = load(experiment, _settings(set_, run__seed=seed))
    federation = shown.federation()
    out.print(tables.of_partition(shown, federation))
    if picture is not None:
        draw({"": federation.counts}, federation.labels, picture, title=tables.partition_title(shown))
        out.print(f"picture  {picture}", highlight=False)


@generators.command(epilog="Example: `fedfuse generator train digits --out gen.safetensors --picture samples.png`")
def train(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A data source of images; see `fedfuse list`.")],
    out_file: Annotated[Path, typer.Option("--out", help="The generator's file: .safetensors")],
    steps: Annotated[int, typer.Option(min=1, help="Steps of each of the two stages.")] = Trainer.steps,
    latent: Annotated[int, typer.Option(min=1, help="Size of the latents.")] = Trainer.latent,
    width: Annotated[int, typer.Option(min=1, help="Channels: more for richer images.")] = Trainer.width,
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.")] = Trainer.seed,
    picture: Annotated[Path | None, typer.Option(help="Also draw a sheet of samples: .png")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the data source.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Train a generator on public images; `data.pool.kind = "generator"` then draws a pool from its file."""
    _at(data_dir)
    trainer = Trainer(latent=latent, width=width, steps=steps, seed=seed)
    if out_file.is_dir():
        raise FedfuseError(f"--out {out_file} is a folder: name a file, as in {out_file / 'gen.safetensors'}")
    images = load_source(source, arguments=_settings(set_)).train
    if picture is not None:
        check_picture(picture, image_shape(images)[0])
    with Steps(out) as watch:
        net = trainer(images, watch).net
    save_generator(out_file, net, source=source, seed=seed)
    out.print(f"generator  {out_file}  {len(images):,} images of {source}, latent {latent}", highlight=False)
    if picture is not None:
        sample(str(out_file), picture, seed, None)
    use = f"--set data.pool.kind=generator --set data.pool.generator={out_file}"
    out.print(f"use it     fedfuse run EXPERIMENT -a feddf {use}", highlight=False, soft_wrap=True)


@generators.command(epilog="Example: `fedfuse generator sample gen.safetensors --out samples.png`")
def sample(
    generator: Annotated[str, typer.Argument(metavar="FILE", help="A generator's file, or package.module:factory.")],
    out_file: Annotated[Path, typer.Option("--out", help="The sheet: .png")],
    seed: Annotated[int, typer.Option(help="Seed of the samples.")] = 0,
    latent: Annotated[int | None, typer.Option(min=1, help="Size of the latents, where it is not known.")] = None,
) -> None:
    """Draw a sheet of a generator's samples."""
    images = generated(frozen(generator, latent), SAMPLES, rng.generator(seed, "sheet"), images=True)
    draw_sheet(images, out_file)
    out.print(f"picture    {out_file}  {SAMPLES} samples", highlight=False)


def main() -> None:
    """The program. A user's mistake is a message and exit code 2, never a traceback."""
    try:
        app()
    except FedfuseError as error:
        err.print("[bold red]error[/] ", end="")
        err.print(str(error), markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        err.print("stopped; every finished round is kept: go on with --resume", highlight=False)
        sys.exit(130)


if __name__ == "__main__":
    main()
