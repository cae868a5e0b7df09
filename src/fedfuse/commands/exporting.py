"""`export`: the model, the numbers and the figures of runs, for other programs and for papers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedfuse.commands.options import Target, importing, out, out_path
from fedfuse.errors import FedfuseError

app = typer.Typer()


@app.command(epilog="Example: `fedfuse export runs/first --hub-folder models/first --license apache-2.0`")
def export(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run directory; for --csv and --figures also a directory of several runs."
        ),
    ],
    hub_folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the model, its configuration and a model card to this folder."),
    ] = None,
    onnx: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the model as ONNX, with its normalisation, and check its outputs."),
    ] = None,
    csv: Annotated[
        bool, typer.Option("--csv", help="Write the numbers of the report as CSV, one file per figure.")
    ] = False,
    figures: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the figures of the report to this folder, as .svg and .png."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="ARCH", help="Architecture to export, if the run reports several.")
    ] = None,
    license_: Annotated[
        str | None,
        typer.Option("--license", metavar="ID", help="License to state in the model card, as in `apache-2.0`."),
    ] = None,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", parser=out_path, metavar="DIR", help="Folder for --csv; by default `csv` in RUN."),
    ] = None,
    target: Target = None,
    trust_code: Annotated[
        bool, typer.Option("--trust-code", help="For --onnx: import the module of a net of your own, which runs it.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite the files of an existing hub folder, or an ONNX file.")
    ] = False,
) -> None:
    """Export a run's model, numbers or figures for other programs."""
    if hub_folder is None and onnx is None and not csv and figures is None:
        raise FedfuseError("nothing to export: give --hub-folder DIR, --onnx FILE, --csv or --figures DIR")
    with importing():
        from rich.progress import track

        from fedfuse.export.hub_folder import export_hub_folder
        from fedfuse.export.to_onnx import export_onnx
        from fedfuse.reports.files import write_numbers, write_pictures

    if hub_folder is not None:
        header = export_hub_folder(run, hub_folder, model=model, license=license_, force=force)
        _print(f"model    {hub_folder}  {header.arch}")
    if onnx is not None:
        written = export_onnx(run, onnx, model=model, trust_code=trust_code, force=force)
        _print(f"onnx     {onnx}  {written.header.arch}, logits within {written.difference:.1g} of PyTorch's")
        _print(f"         takes {written.inputs}")
    if csv:
        folder = out_dir or run / "csv"
        _print(f"numbers  {folder}  {len(write_numbers([run], folder, target=target))} files")
    if figures is not None:
        files = write_pictures(
            [run],
            figures,
            target=target,
            progress=lambda items: track(items, "drawing", console=out, transient=True, disable=not out.is_terminal),
        )
        _print(f"figures  {figures}  {len(files)} files")


def _print(text: str) -> None:
    out.print(text, highlight=False, soft_wrap=True)
