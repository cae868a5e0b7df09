"""Render the page: one self-contained HTML file that makes no network requests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from fedfuse.files import write_whole
from fedfuse.records.record import strict
from fedfuse.reports.elements import Block, Choice, Table, Words, figures_and_tables
from fedfuse.reports.page import Report
from fedfuse.reports.to_plotly import to_plotly


@cache
def _asset(name: str) -> str:
    return (resources.files("fedfuse.reports") / "assets" / name).read_text(encoding="utf-8")


@cache
def _template() -> jinja2.Template:
    # Reasons of refused clients are untrusted text: escape everything that is not marked as safe.
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    return environment.from_string(_asset("page.html"))


def whole_page(report: Report) -> str:
    """Return the page as one file, with plotly included."""
    return _render(report, part="page", live=False, plotly=plotly_script())


def live_page(report: Report) -> str:
    """Return the page for a server: it loads plotly once, and the body again whenever it changes."""
    return _render(report, part="page", live=True, plotly="")


def body(report: Report) -> str:
    return _render(report, part="body", live=True, plotly="")


def plotly_script() -> str:
    return str(get_plotlyjs())


def write(report: Report, out: Path) -> Path:
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, whole_page(report).encode(errors="replace"))
    return out


def arrangement(blocks: Sequence[Block]) -> list[tuple[Block, bool]]:
    """Return each block and whether it takes the full width. Figures are in pairs; one left over takes both places."""
    places: list[tuple[Block, bool]] = []
    left = True
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        whole = _whole(block) or (left and (following is None or _whole(following)))
        places.append((block, whole))
        left = whole or not left
    return places


def _whole(block: Block) -> bool:
    if isinstance(block, Choice):
        return any(len(option) > 1 or isinstance(option[0], Table) for option in block.options.values())
    return isinstance(block, Table | Words)


def _render(report: Report, **settings: Any) -> str:
    figures = {
        block.key: to_plotly(block) for block in figures_and_tables(report.sections) if not isinstance(block, Table)
    }
    # Escape "<", so that no text can close the script element.
    data = json.dumps(strict(figures), allow_nan=False).replace("<", "\\u003c")
    return _template().render(
        arrangement=arrangement,
        report=report,
        figures=data,
        style=_asset("page.css"),
        script=_asset("page.js"),
        **settings,
    )
