"""`init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedfuse.commands.options import DataDir, check_writable, dotted_settings, importing, look_in, out, out_path
from fedfuse.errors import FedfuseError

app = typer.Typer()
FILE = "experiment.toml"


@app.command(epilog="Example: `fedfuse init ./photos`, `fedfuse init patients.csv --label ill --client hospital`")
def init(
    source: Annotated[
        str,
        typer.Argument(help="A folder of images, a parquet or CSV file, a hub id, a built-in source, or a function."),
    ],
    out_file: Annotated[
        Path | None,
        typer.Option("--out", parser=out_path, metavar="PATH", help="The file to write; by default experiment.toml."),
    ] = None,
    label: Annotated[str | None, typer.Option(help="The column of labels; by default the likeliest.")] = None,
    client: Annotated[str | None, typer.Option(help="The column that says whose an example is.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set a key of the data: `data.size=64`. Repeatable."),
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Look at data, print what it holds, and write an experiment that runs as it stands. No file is overwritten."""
    with importing():
        from fedfuse.data.sources.location import Location
        from fedfuse.drafts.draft import already_exists, draft, write
        from fedfuse.drafts.look import facts, look
        from fedfuse.terminal import tables

    look_in(data_dir)
    file = out_file or Path(FILE)
    if file.exists() and not file.is_dir():
        raise already_exists(file)
    check_writable(file, FILE)
    settings = dotted_settings(set_)
    if other := [key for key in settings if not key.startswith("data.")]:
        raise FedfuseError(f"--set {other[0]}: init takes keys of the data, as in data.size=64: edit the file after")
    given = {key.removeprefix("data."): value for key, value in settings.items()}
    location = Location.at()
    seen = look(source, given | ({} if label is None else {"label": label}), client, location)
    out.print(tables.of_look(source, facts(seen)))
    write(draft(seen, file.stem, location), file)
    out.print(f"\nwrote {file}", highlight=False)
    out.print(f"next: fedfuse check {file}; fedfuse compare {file} -a fedavg -a feddf", highlight=False)
