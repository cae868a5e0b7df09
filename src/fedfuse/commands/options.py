"""What several commands share: their options, the consoles, and the display of a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedfuse.config.overlay import algorithm_settings
from fedfuse.config.values import parse_value
from fedfuse.runs.display import Display
from fedfuse.terminal.progress import Lines, Live
from fedfuse.types import FedfuseError

# A pipe has no width of its own; rich would take 80 columns and cut tables short.
out = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 110)
err = Console(stderr=True)

STOPPED = "stopped; every finished round is kept: `run` goes on with --resume, other commands when given again"

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
Target = Annotated[float | None, typer.Option(help="Accuracy to count rounds and parameters to, as 0.85.")]
WithReport = Annotated[bool, typer.Option("--report/--no-report", help="Write report.html at the end.")]
WorkerCount = Annotated[int | None, typer.Option("--workers", help="Worker processes; 0 is one per core.")]


def dotted_settings(pairs: list[str] | None, algorithm: str | None = None, **options: Any) -> dict[str, Any]:
    """Dotted keys: the algorithm first, for `--set` may set its settings; options with a name of their own last."""
    settings: dict[str, Any] = {}
    for pair in pairs or []:
        key, equals, text = pair.partition("=")
        if not equals:
            raise FedfuseError(f"--set {pair}: write KEY=VALUE, as in --set local.lr=0.05")
        settings[key.strip()] = parse_value(text.strip())
    chosen = {} if algorithm is None else algorithm_settings(algorithm)
    named = {key.replace("__", "."): value for key, value in options.items() if value is not None}
    if algorithm is not None:
        named["algorithm.name"] = chosen["algorithm.name"]
    return {**chosen, **settings, **named}


def look_in(data_dir: Path | None) -> None:
    if data_dir is not None:
        if not data_dir.is_dir():
            raise FedfuseError(f"--data-dir {data_dir}: there is no such folder")
        os.environ["FEDFUSE_DATA"] = str(data_dir)


@contextmanager
def shown() -> Iterator[Display]:
    with Live(out) if out.is_terminal else nullcontext(Lines(out)) as display:
        try:
            yield display
        except KeyboardInterrupt:  # typer would only say that it was aborted
            err.print(STOPPED, highlight=False)
            raise typer.Exit(130) from None
