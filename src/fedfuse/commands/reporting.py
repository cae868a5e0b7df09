"""`report` and `watch`: the HTML report of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedfuse.commands.options import Target, err, importing, out, out_path
from fedfuse.errors import FedfuseError

app = typer.Typer()

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Directories of runs, comparisons or sweeps.")]


@app.command(epilog="Example: `fedfuse report runs/compare-digits --target 0.85 --out report.html`")
def report(
    runs: Runs,
    out_file: Annotated[
        Path | None,
        typer.Option(
            "--out",
            parser=out_path,
            metavar="PATH",
            help="File to write; by default `report.html` in the first directory.",
        ),
    ] = None,
    target: Target = None,
    shared_assets: Annotated[
        bool,
        typer.Option(
            "--shared-assets", help="Write plotly to a file beside the page, which all pages of that folder share."
        ),
    ] = False,
) -> None:
    """Write an HTML report of runs, from their records on disk. It needs no network and no server."""
    if out_file is not None and out_file.is_dir():
        raise FedfuseError(f"--out {out_file} is a folder: name a file, as in {out_file / 'report.html'}")
    with importing():
        from fedfuse.reports import report as write_report

    say_where(write_report(*runs, out=out_file, target=target, shared_assets=shared_assets))


@app.command(epilog="Example: `fedfuse watch runs/digits-feddf-seed0`")
def watch(
    runs: Runs,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0 is any free port.")] = 0,
    browse: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    target: Target = None,
) -> None:
    """Serve the HTML report of runs in progress; the page updates itself. Only this machine can reach it."""
    with importing():
        import webbrowser

        from fedfuse.reports.watch import server

    serving = server(runs, port, target=target)
    address = f"http://{serving.server_address[0]!s}:{serving.server_address[1]}/"
    out.print(f"watching  {address}  (stop with Ctrl-C)", highlight=False, soft_wrap=True)
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


def report_at_end(folder: Path, target: float | None = None, *, quiet: bool = False, as_json: bool = False) -> None:
    """Write the report at the end of a command. A failure is only a warning: the runs are complete."""
    with importing():
        from fedfuse.reports import report as write_report
        from fedfuse.terminal.objects import of_report, print_objects

    try:
        page = write_report(folder, target=target)
    except (FedfuseError, OSError) as error:
        console = err if quiet or as_json else out
        console.print(f"warning: no report was written: {error}", highlight=False, markup=False, soft_wrap=True)
        return
    if as_json:
        print_objects(out, iter([of_report(page)]))
    elif not quiet:
        say_where(page)
