"""Render the page: one self-contained HTML file that makes no network requests."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from fedfuse.files import write_whole
from fedfuse.records.record import strict
from fedfuse.reports.elements import Block, Choice, Picture, Table, Words, figures_and_tables
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
    """Return the page as one file, with plotly included in compressed form."""
    return _render(report, part="page", live=False, plotly=_packed_plotly(), plotly_file="")


def page_beside(report: Report) -> str:
    """Return a page that loads plotly from the file `shared_name()` beside it."""
    return _render(report, part="page", live=False, plotly="", plotly_file=shared_name())


def live_page(report: Report) -> str:
    """Return the page for a server: it loads plotly once, and the body again whenever it changes."""
    return _render(report, part="page", live=True, plotly="", plotly_file="plotly.js")


def body(report: Report) -> str:
    return _render(report, part="body", live=True)


def plotly_script() -> str:
    return str(get_plotlyjs())


def shared_name() -> str:
    return f"plotly-{get_plotlyjs_version()}.min.js"


@cache
def _packed_plotly() -> str:
    """Return the script as gzip in base64, 40 % of its size. The browser unpacks it."""
    return base64.b64encode(gzip.compress(plotly_script().encode(), mtime=0)).decode()


def write(report: Report, out: Path, *, shared_assets: bool = False) -> Path:
    """Write the page. With `shared_assets`, it loads plotly from a file that all pages of its folder share."""
    out.parent.mkdir(parents=True, exist_ok=True)
    page = page_beside(report) if shared_assets else whole_page(report)
    if shared_assets:
        write_whole(out.parent / shared_name(), plotly_script().encode())
    write_whole(out, page.encode(errors="replace"))
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
    return isinstance(block, Table | Words | Picture)


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
