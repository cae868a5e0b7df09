"""Options and consoles, as shared by several commands. Nothing here imports torch: `--help` need not wait for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fedfuse.commands.completion import algorithms, experiments
from fedfuse.errors import FedfuseError
from fedfuse.terminal.streams import leaving_at_once, say_stopped

if TYPE_CHECKING:
    from fedfuse.runs.display import Display

# A pipe has no width: rich would assume 80 columns and truncate tables.
_is_terminal = sys.stdout is not None and sys.stdout.isatty()  # None: the stream was closed by `>&-`
out = Console(width=None if _is_terminal or "COLUMNS" in os.environ else 110)
err = Console(stderr=True)

# Commands import inside this block what they need: it takes seconds, in which a signal must end the program at once.
importing = leaving_at_once

ExperimentName = Annotated[
    str,
    typer.Argument(
        metavar="EXPERIMENT",
        help="Name of a built-in experiment (see `fedfuse list`), or a TOML file.",
        autocompletion=experiments,
    ),
]
AlgorithmName = Annotated[
    str | None,
    typer.Option(
        "--algorithm",
        "-a",
        help="Algorithm, as in `fedprox(mu=0.1)`; by default the experiment's.",
        autocompletion=algorithms,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Folder with data in the Hugging Face Hub's layout. Overrides FEDFUSE_DATA."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set any key of the experiment: `local.lr=0.05`. Repeatable."),
]
Rounds = Annotated[int | None, typer.Option("--rounds", "-r", help="Number of rounds; by default the experiment's.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors, both on standard error.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line, for other programs.")]


def _share(target: float | None) -> float | None:
    if target is None or 0 < target <= 1:
        return target
    percent = f", as in {target / 100:g}" if 1 < target <= 100 else ", as in 0.85"
    raise FedfuseError(f"--target {target:g}: give a share of the test set between 0 and 1{percent}")


Target = Annotated[
    float | None,
    typer.Option(callback=_share, help="Target accuracy, as in 0.85: count the rounds and parameters to reach it."),
]
WithReport = Annotated[bool, typer.Option("--report/--no-report", help="Write `report.html` at the end.")]
WorkerCount = Annotated[
    int | None,
    typer.Option("--workers", help="Number of worker processes, 0 is one per core; by default the experiment's."),
]


def dotted_settings(pairs: list[str] | None, algorithm: str | None = None, **options: Any) -> dict[str, Any]:
    """Return options as dotted keys. `--set` overrides the algorithm's settings, and named options override `--set`."""
    from fedfuse.config.overlay import algorithm_settings
    from fedfuse.config.values import parse_value

    settings: dict[str, Any] = {}
    for pair in pairs or []:
        key, equals, text = pair.partition("=")
        if not equals:
            raise FedfuseError(f"--set {pair}: write KEY=VALUE, as in --set local.lr=0.05")
        settings[key.strip()] = parse_value(text.strip())
    of_algorithm = {} if algorithm is None else algorithm_settings(algorithm)
    of_options = {key.replace("__", "."): value for key, value in options.items() if value is not None}
    if algorithm is not None:
        of_options["algorithm.name"] = of_algorithm["algorithm.name"]
    return {**of_algorithm, **settings, **of_options}


def out_path(text: str) -> Path:
    """Return the path of an `--out`. Refuse an empty one, which would be the current folder."""
    if not text.strip():
        raise FedfuseError(f"--out {text!r}: the path is empty: name a file or folder, or leave --out out")
    return Path(text)


def check_writable(file: Path, example: str) -> None:
    """Raise an error before long work if this file could not be written after it."""
    if file.is_dir():
        raise FedfuseError(f"--out {file} is a folder: name a file, as in {file / example}")
    place = next(folder for folder in file.absolute().parents if folder.exists())  # missing folders are made
    if not place.is_dir():
        raise FedfuseError(f"--out {file}: {place} is not a folder: choose another path")
    if not os.access(place, os.W_OK):
        raise FedfuseError(f"--out {file}: no permission to write to {place}: get it, or choose another path")


def look_in(data_dir: Path | None) -> None:
    if data_dir is not None:
        if not data_dir.is_dir():
            raise FedfuseError(f"--data-dir {data_dir}: there is no such folder")
        os.environ["FEDFUSE_DATA"] = str(data_dir)


@contextmanager
def shown(*, quiet: bool = False, as_json: bool = False) -> Iterator[Display]:
    """Yield the display of a run: bars on a terminal, lines when piped, objects with `as_json`."""
    with importing():
        from fedfuse.runs.progress import Lines, Live, Warnings
        from fedfuse.terminal.objects import Objects

    plain = Objects(out, rounds=not quiet) if as_json else Warnings(err) if quiet else Lines(out)
    with Live(out) if out.is_terminal and not (quiet or as_json) else nullcontext(plain) as display:
        try:
            yield display
        except KeyboardInterrupt as stop:  # typer would only print that the command was aborted
            raise typer.Exit(say_stopped(stop)) from None
