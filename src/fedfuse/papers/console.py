"""Tables on the terminal about the papers' tables and figures."""

from __future__ import annotations

from rich import box
from rich.table import Table

from fedfuse.papers.item import Item, load, names
from fedfuse.papers.result import Result
from fedfuse.papers.show import claims_table, numbers_table
from fedfuse.reports import elements

COLOURS = {"holds": "green", "does not hold": "red", "not decided by these seeds": "yellow"}


def catalogue() -> Table:
    """Return all items."""
    table = Table(title="Tables and figures of the papers", box=box.SIMPLE_HEAD, title_justify="left")
    for column in ("name", "paper", "what it shows", "scales"):
        table.add_column(column, overflow="fold")
    for name in names():
        item = load(name)
        table.add_row(name, f"{item.paper}, {item.place}", item.title, ", ".join(item.scales) or item.not_small)
    return table


def of_result(item: Item, result: Result) -> list[Table]:
    """Return the numbers beside the paper's, and the claims with their verdicts."""
    tables = [_rich(numbers_table(item, result))]
    return [*tables, _rich(claims_table(item, result))] if item.claims else tables


def _rich(shown: elements.Table) -> Table:
    table = Table(title=shown.title, caption=shown.caption, box=box.SIMPLE_HEAD, title_justify="left")
    for column in shown.columns:
        table.add_column(column, justify="left" if column in shown.words else "right")
    for row in shown.rows:
        table.add_row(*(f"[{COLOURS[str(cell)]}]{cell}[/]" if cell in COLOURS else str(cell) for cell in row))
    return table
