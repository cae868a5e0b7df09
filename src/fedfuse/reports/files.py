"""Write the numbers of every figure and table as CSV, and every figure as a picture."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fedfuse.files import write_whole
from fedfuse.reports.elements import Table, figures_and_tables
from fedfuse.reports.figure import Figure, Numbers
from fedfuse.reports.page import report_of
from fedfuse.reports.rounds import every_round
from fedfuse.reports.to_picture import draw
from fedfuse.types import FedfuseError

Progress = Callable[[Sequence[Figure]], Iterable[Figure]]
KINDS = ("svg", "png", "pdf")


def write_numbers(paths: Sequence[Path], folder: Path, *, target: float | None = None) -> list[Path]:
    """Write a CSV file for each figure and table, and `rounds.csv` with every round."""
    tables = {block.key: block.numbers() for block in figures_and_tables(report_of(paths, target).sections)}
    tables["rounds"] = every_round(paths)
    folder.mkdir(parents=True, exist_ok=True)
    for key, numbers in tables.items():
        write_whole(folder / f"{key}.csv", _csv(numbers).encode())
    return [folder / f"{key}.csv" for key in tables]


def write_pictures(
    paths: Sequence[Path],
    folder: Path,
    *,
    kinds: Sequence[str] = ("svg", "png"),
    target: float | None = None,
    progress: Progress = iter,
) -> list[Path]:
    """Write every figure in each of these kinds. `progress` yields the figures and may show a progress bar."""
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise FedfuseError(f"cannot write pictures of kind {unknown[0]!r}: choose from {', '.join(KINDS)}")
    figures = [block for block in figures_and_tables(report_of(paths, target).sections) if not isinstance(block, Table)]
    pictures = []
    for figure in progress(figures):
        files = [folder / f"{figure.key}.{kind}" for kind in kinds]
        draw(figure, files)
        pictures += files
    return pictures


def _csv(numbers: Numbers) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(numbers.columns)
    writer.writerows([["" if cell is None else _safe(cell) for cell in row] for row in numbers.rows])
    return text.getvalue()


def _safe(cell: str | float) -> str | float:
    """Mark text that a spreadsheet would execute as a formula: some of it comes from clients."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell
