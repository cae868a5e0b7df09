"""All commands in one application. Commands only read options and print; the package does everything else."""

from __future__ import annotations

import sys

import typer

from fedfuse.commands import exporting, flower, fusing, generators, reporting, running, showing, sweeping
from fedfuse.commands.options import err
from fedfuse.types import FedfuseError

app = typer.Typer(
    name="fedfuse",
    help="Federated model fusion by ensemble distillation.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
for group in (running, sweeping, fusing, reporting, exporting, showing):
    app.add_typer(group.app)
app.add_typer(generators.app, name="generator")
app.add_typer(flower.app, name="flower")


def run() -> None:
    """Run the command line. A user's mistake prints a message and exits with code 2, without a traceback."""
    try:
        app()
    except FedfuseError as error:
        err.print("[bold red]error[/] ", end="")
        err.print(str(error), markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
