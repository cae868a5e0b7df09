"""All commands in one application. Commands only read options and print; the package does everything else.

No module here imports torch, or anything that does, before its command runs: `--help` and the completion of words in a
shell would take seconds. What a command needs is imported in its function, inside `with importing():`.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from fedfuse.commands import (
    exporting,
    flower,
    fusing,
    generators,
    papers,
    reporting,
    running,
    showing,
    starting,
    sweeping,
)
from fedfuse.commands.options import err
from fedfuse.errors import FedfuseError
from fedfuse.files import remedy

app = typer.Typer(
    name="fedfuse",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
for group in (starting, running, sweeping, fusing, reporting, exporting, showing):
    app.add_typer(group.app)
app.add_typer(papers.app, name="papers")
app.add_typer(generators.app, name="generator")
app.add_typer(flower.app, name="flower")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedfuse {version('fedfuse')}")
        raise typer.Exit


@app.callback()
def fedfuse(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Federated model fusion by ensemble distillation."""


def run() -> None:
    """Run the command line. A user's mistake prints a message and exits with code 2, without a traceback."""
    try:
        app()
    except SystemExit as end:
        stop = getattr(end.__context__, "__cause__", None)  # typer calls an interrupt an abort, and exits with code 1
        raise stop if isinstance(stop, KeyboardInterrupt) else end from None
    except FedfuseError as error:
        _end(str(error))
    except OSError as error:  # outside a run, which says what was kept
        _end(f"{error.filename or 'a file'}: {error.strerror or error}: {remedy(error)}")
    except MemoryError:
        _end("this machine ran out of memory: lower batch sizes, or choose smaller models or data")


def _end(message: str) -> NoReturn:
    err.print("[bold red]error[/] ", end="")
    err.print(message, markup=False, highlight=False, soft_wrap=True)
    sys.exit(2)
