"""`papers list`, `papers run`, `papers table`: the tables and figures of the papers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedfuse.commands.options import DataDir, Set, dotted_settings, importing, look_in, out, out_path, shown
from fedfuse.commands.reporting import say_where

app = typer.Typer(
    no_args_is_help=True, help="The papers' tables and figures: list and run them, write the page of results."
)


@app.command("list", epilog="Example: `fedfuse papers list`")
def list_() -> None:
    """List every table and figure of the papers, with its scales."""
    with importing():
        from fedfuse.papers import console

    out.print(console.catalogue())


@app.command(epilog="Example: `fedfuse papers run feddf-figure-2 --seeds 3`")
def run(
    name: Annotated[str, typer.Argument(help="Name of a table or figure; see `fedfuse papers list`.")],
    scale: Annotated[
        Literal["small", "medium", "full"], typer.Option(help="Minutes or hours on two cores, or the paper's scale.")
    ] = "small",
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds, from 0; by default the item's.")] = None,
    groups: Annotated[
        list[str] | None, typer.Option("--group", help="Only this variation; repeatable. By default all of the scale.")
    ] = None,
    rows: Annotated[
        list[str] | None, typer.Option("--row", help="Only this row; repeatable. By default all of the scale.")
    ] = None,
    recorded: Annotated[
        bool,
        typer.Option("--recorded", help="Train nothing: show the rounds that are on disk, of unfinished runs too."),
    ] = False,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", parser=out_path, metavar="PATH", help="Directory, by default under ./runs/papers."),
    ] = None,
    results: Annotated[
        Path | None, typer.Option("--results", metavar="DIR", help="Also write the file of results to this folder.")
    ] = None,
    set_: Set = None,
    data_dir: DataDir = None,
) -> None:
    """Run a table or figure and check the paper's claims. Repeat the command to continue."""
    look_in(data_dir)
    with importing():
        from fedfuse.papers import console, page, study
        from fedfuse.papers.item import load

    item = load(name).at(scale, groups or (), rows or ())
    folder = out_dir or Path("runs") / "papers" / f"{name}-{scale}"
    with shown() as display:
        settings = dotted_settings(set_)
        result = study.run(
            name, item, scale, seeds=seeds, out=folder, settings=settings, groups=groups or (), rows=rows or (),
            recorded=recorded, display=display,
        )  # fmt: skip
    for place in filter(None, (folder, results)):
        result.write(place / f"{result.name}.json")
        if item.picture:
            shutil.copyfile(folder / study.PICTURE, place / f"{result.name}.png")
    for table in console.of_result(item, result):
        out.print(table)
    picture = folder / study.PICTURE if item.picture else None
    say_where(page.write(name, item, result, folder / "report.html", picture))


@app.command(epilog="Example: `fedfuse papers table benchmarks/papers/results --out docs/papers/results.md`")
def table(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Folder with files of results.")],
    out_file: Annotated[
        Path | None,
        typer.Option("--out", parser=out_path, metavar="PATH", help="Markdown file to write, by default ./results.md."),
    ] = None,
) -> None:
    """Write the page of all results, with its figures, from files of results."""
    with importing():
        from fedfuse.papers import overview
        from fedfuse.papers.result import read_all

    written = overview.write(read_all(results), out_file or Path("results.md"), pictures=results)
    figures = len(written) - 1
    out.print(f"page      {written[0]}, {figures} figure{'' if figures == 1 else 's'}", highlight=False, soft_wrap=True)
