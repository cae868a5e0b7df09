"""`export`: the model, the numbers and the pictures of runs, for other programs and for papers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from fedfuse.commands.options import Target, out
from fedfuse.export.hub_folder import export_hub_folder
from fedfuse.reports.files import write_numbers, write_pictures
from fedfuse.types import FedfuseError

app = typer.Typer()


@app.command(epilog="Example: `fedfuse export runs/first --hub-folder models/first --license apache-2.0`")
def export(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="The directory of a run; for numbers and pictures also of many of them."),
    ],
    hub_folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the model, its configuration and a model card here.")
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Write the numbers of the report, a file per figure.")] = False,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draw the figures of the report here: .svg and .png")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="ARCH", help="Which model, where the run has several that it reports.")
    ] = None,
    license_: Annotated[
        str | None, typer.Option("--license", metavar="ID", help="The license that the model card states, if any.")
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where --csv writes; by default csv in RUN.")
    ] = None,
    target: Target = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a hub folder that is there.")] = False,
) -> None:
    """Make something of a run that others can read: its model, its numbers, its pictures."""
    if hub_folder is None and not csv and figures is None:
        raise FedfuseError("nothing to export: give --hub-folder DIR, --csv or --figures DIR")
    if hub_folder is not None:
        written = export_hub_folder(run, hub_folder, model=model, license=license_, force=force)
        _say(f"model    {hub_folder}  {written.arch}")
    if csv:
        folder = out_dir or run / "csv"
        _say(f"numbers  {folder}  {len(write_numbers([run], folder, target=target))} files")
    if figures is not None:
        drawn = write_pictures(
            [run],
            figures,
            target=target,
            progress=lambda all_: track(all_, "drawing", console=out, transient=True, disable=not out.is_terminal),
        )
        _say(f"figures  {figures}  {len(drawn)} files")


def _say(text: str) -> None:
    out.print(text, highlight=False, soft_wrap=True)
