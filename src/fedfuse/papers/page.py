"""The page of one table or figure: a report with the paper's numbers beside ours."""

from __future__ import annotations

from pathlib import Path

from fedfuse.papers.claims import check, count
from fedfuse.papers.item import Item
from fedfuse.papers.result import Result
from fedfuse.papers.show import claims_table, figures, numbers_table
from fedfuse.reports import html
from fedfuse.reports.elements import Card, Picture, Section, Words
from fedfuse.reports.page import Report


def write(name: str, item: Item, result: Result, path: Path, picture: Path | None = None) -> Path:
    """Write the page. picture: what the item's measuring function drew, if it draws one."""
    drawn = None if picture is None else Picture(picture.read_bytes(), item.picture)
    return html.write(report_of(name, item, result, drawn), path)


def report_of(name: str, item: Item, result: Result, picture: Picture | None = None) -> Report:
    checked = check(item, result)
    cards = [
        Card("claims of the paper", count(checked), "paired over seeds, two standard errors"),
        Card("scale", result.scale, f"{len(result.seeds)} seed{'s' if len(result.seeds) > 1 else ''}"),
    ]
    claims = [claims_table(item, result)] if checked else []
    shown = [] if picture is None else [picture]
    sections = [
        Section("claims", "What the paper claims, and what is seen here", [Words(item.shows), *shown, *claims], cards),
        Section("numbers", "Numbers", [numbers_table(item, result), *figures(name, item, result)]),
        Section(
            "origin", "Origin", [Words(f"{result.setting}."), Words(result.command, code=True), Words(origin(result))]
        ),
    ]
    return Report(f"{item.paper}, {item.place}: {item.title}", f"{result.scale} scale · {result.setting}", sections)


def origin(result: Result) -> str:
    minutes = f"{result.minutes:g} minute{'' if result.minutes == 1 else 's'}"
    return f"Measured on {result.date} at commit {result.commit} in {minutes}."
