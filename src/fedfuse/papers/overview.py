"""The page of all results: `docs/papers/results.md`, with its figures, written from the files of results."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from fedfuse.files import write_whole
from fedfuse.papers.claims import check, count
from fedfuse.papers.item import Item, load, names
from fedfuse.papers.page import origin
from fedfuse.papers.result import Result
from fedfuse.papers.show import claims_table, figures, numbers_table
from fedfuse.reports.elements import Table
from fedfuse.reports.to_picture import draw

HEAD = """# The papers' tables and figures, seen here

For readers who want to know which claims of the papers hold in this implementation, and how that was measured. The page
is written by `fedfuse papers table` from the files of results; do not edit it.

Each table or figure is a command, `fedfuse papers run NAME`, at two scales: `small` is meant to end in 20 minutes on
two idle cores, `full` is the paper's; a few have `medium`, which takes hours. The minutes below are those of runs that
mostly shared the cores with other work, so they are upper bounds: beside work of low priority only, one of the three
seeds of `feddf-table-4` took 5 minutes, and of `where-distillation-pays` 2.

A claim *holds*, *does not hold*, or is *not decided by these seeds*: the difference is paired over seeds, and clear if
it is more than two standard errors from zero. That is a mild test: with three seeds, chance alone passes it about one
time in eleven in each direction, with ten one time in 26. A claim that does not hold at small scale may hold at the
paper's.
"""


def write(results: Mapping[str, Result], out: Path, pictures: Path) -> list[Path]:
    """Write the page and its figures. Figures of earlier results that are not on it are removed.

    pictures: the folder with the pictures that measuring functions wrote.
    """
    folder = out.parent / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, result in results.items():
        item = result.of(load(result.item))
        for figure in figures(name, item, result):
            drawn.append(folder / f"{figure.key}.svg")
            draw(figure, [drawn[-1]])
        if item.picture:
            drawn.append(folder / f"{name}.png")
            shutil.copyfile(pictures / drawn[-1].name, drawn[-1])
    for old in {*folder.glob("*.svg"), *folder.glob("*.png")} - set(drawn):
        old.unlink()
    write_whole(out, text(results).encode())
    return [out, *drawn]


def text(results: Mapping[str, Result]) -> str:
    """Return the page as Markdown."""
    items = {name: load(name) for name in names()}
    checked = {name: check(result.of(items[result.item]), result) for name, result in results.items()}
    overview = [
        f"In all: {count([one for each in checked.values() for one in each])}.\n",
        "| paper | what is compared | scale | claims |",
        "| --- | --- | --- | --- |",
    ]
    parts = []
    for name, result in results.items():
        item = result.of(items[result.item])
        scale = f"{result.scale}, {len(result.seeds)} seeds" if len(result.seeds) > 1 else result.scale
        place = f"[{item.paper}, {item.place}](#{name})"
        overview.append(f"| {place} | {item.title} | {scale} | {count(checked[name])} |")
        parts.append(_part(name, item, result))
    measured = {result.item for result in results.values()}
    absent = {name: item for name, item in items.items() if name not in measured}
    return "\n".join([HEAD, *overview, *_absent(absent), *parts])


def _absent(items: Mapping[str, Item]) -> list[str]:
    """Return the lines about items without a result: those to be measured, and those that need more than this scale."""
    later = [f"`{name}`" for name, item in items.items() if item.small is not None]
    lines = [f"\nNot measured yet: {', '.join(later)}."] if later else []
    reasons = [f"- `{name}`: {item.not_small}" for name, item in items.items() if item.small is None]
    return [*lines, "\nWithout a small scale:\n", *reasons] if reasons else lines


def _part(name: str, item: Item, result: Result) -> str:
    """Return the section of one item."""
    pictures = [f"![{f.title}](figures/{f.key}.svg)" for f in figures(name, item, result)]
    if item.picture:
        pictures.insert(0, f"![{item.picture}](figures/{name}.png)")
    claims = [_markdown(claims_table(item, result))] if item.claims else []
    return "\n\n".join(
        [
            f"\n## {name}",
            f"**{item.paper}, {item.place}: {item.title}.** {item.shows}",
            _markdown(numbers_table(item, result)),
            *claims,
            *pictures,
            f"{result.setting.rstrip('.')}. {origin(result)} `{result.command}`",
        ]
    )


def _markdown(table: Table) -> str:
    head = [f"**{table.title}** ({table.caption})" if table.key == "numbers" else ""]
    sides = [" --- " if column in table.words else " ---: " for column in table.columns]
    lines = [f"| {' | '.join(str(cell) for cell in row)} |" for row in (table.columns, *table.rows)]
    lines.insert(1, f"|{'|'.join(sides)}|")
    return "\n\n".join([*filter(None, head), "\n".join(lines)])
