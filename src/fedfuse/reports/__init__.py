"""Reports: what runs on disk tell, as one page, as pictures and as numbers. Nothing here looks at live objects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedfuse.records.directory import REPORT
from fedfuse.reports import html
from fedfuse.reports.page import report_of

__all__ = ["write_report"]


def write_report(paths: Sequence[str | Path], out: str | Path | None = None, *, target: float | None = None) -> Path:
    """Write the page about these runs, comparisons or sweeps; by default as `report.html` into the first of them."""
    places = [Path(path) for path in paths]
    return html.write(report_of(places, target), Path(out) if out is not None else places[0] / REPORT)
