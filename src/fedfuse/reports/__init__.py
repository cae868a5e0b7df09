"""Reports about runs on disk: an HTML page, pictures and CSV files. Only files are read, never live objects."""

from __future__ import annotations

from pathlib import Path

from fedfuse.records.directory import REPORT
from fedfuse.reports import html
from fedfuse.reports.page import report_of
from fedfuse.types import FedfuseError

__all__ = ["report"]


def report(
    *paths: str | Path, out: str | Path | None = None, target: float | None = None, shared_assets: bool = False
) -> Path:
    """Write the page about these runs, comparisons or sweeps, by default to `report.html` in the first directory.

    shared_assets: load plotly from a file beside the page, which all pages of that folder share.
    """
    folders = [Path(path) for path in paths]
    if not folders:
        raise FedfuseError("report: give the directory of a run, a comparison or a sweep")
    page = Path(out) if out is not None else folders[0] / REPORT
    return html.write(report_of(folders, target), page, shared_assets=shared_assets)
