"""`report` and `watch`: the page about runs."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from fedfuse.commands.options import Target, out
from fedfuse.reports import report as write_report
from fedfuse.reports.watch import server
from fedfuse.types import FedfuseError

app = typer.Typer()

Runs = Annotated[
    list[Path], typer.Argument(metavar="RUN...", help="Directories of runs, of a comparison, or of a sweep.")
]


@app.command(epilog="Example: `fedfuse report runs/compare-digits --target 0.85 --out report.html`")
def report(
    runs: Runs,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="The page; by default report.html in the first directory.")
    ] = None,
    target: Target = None,
) -> None:
    """Write one page about runs: it opens offline, by a double click. Made from the records on disk only."""
    if out_file is not None and out_file.is_dir():
        raise FedfuseError(f"--out {out_file} is a folder: name a file, as in {out_file / 'report.html'}")
    say_where(write_report(*runs, out=out_file, target=target))


@app.command(epilog="Example: `fedfuse watch runs/digits-feddf-seed0`")
def watch(
    runs: Runs,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0 is any that is free.")] = 0,
    browse: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser.")] = True,
    target: Target = None,
) -> None:
    """Serve the same page while runs go on; it follows them by itself. Nobody but this machine can reach it."""
    serving = server(runs, port, target=target)
    address = f"http://{serving.server_address[0]!s}:{serving.server_address[1]}/"
    out.print(f"watching  {address}  (Ctrl-C ends it)", highlight=False, soft_wrap=True)
    if browse:
        webbrowser.open(address)
    try:
        serving.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        serving.server_close()


def say_where(page: Path) -> None:
    out.print(f"report    {page}", highlight=False, soft_wrap=True)


def report_at_end(folder: Path, target: float | None = None) -> None:
    """The page at the end of a command. That it could not be written takes nothing from the runs."""
    try:
        say_where(write_report(folder, target=target))
    except (FedfuseError, OSError) as error:
        out.print(f"warning: no report was written: {error}", highlight=False, markup=False, soft_wrap=True)
