"""What the last round's models answer, by class."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from fedfuse.records.statistics import deviation
from fedfuse.reports.elements import Choice, Section
from fedfuse.reports.figure import Bar, Bars, Figure, Heat
from fedfuse.reports.variants import Line

Square = list[list[int]]
MOST_BARS = 100  # side by side; where there would be more, each line has a figure of its own


def section(lines: Sequence[Line]) -> Section | None:
    squares = {line.name: _squares(line) for line in lines}
    known = [line for line in lines if squares[line.name]]
    if not known:
        return None
    heats = {line.name: _confusion(line, squares[line.name]) for line in known}
    if len(known) == 1:
        return Section("classes", "Classes", [_by_class(known, squares), heats[known[0].name]])
    if len(known) * len(known[0].runs[0].labels) > MOST_BARS:
        pairs = {line.name: [_by_class([line], squares, line.suffix), heats[line.name]] for line in known}
        return Section("classes", "Classes", [Choice("classes", pairs)])
    choice = Choice("confusion", {name: [heat] for name, heat in heats.items()})
    return Section("classes", "Classes", [_by_class(known, squares), choice])


def _squares(line: Line) -> list[Square]:
    """Each seed's confusion, added up over the models that the run reports."""
    found = []
    for run in line.runs:
        models = run.evaluation.get("models", {})
        each = [models[a]["confusion"] for a in run.federation.get("reported", ()) if a in models]
        if each:
            found.append(_added(each))
    return found


def _added(squares: Sequence[Square]) -> Square:
    return [[sum(cells) for cells in zip(*rows, strict=True)] for rows in zip(*squares, strict=True)]


def _by_class(lines: Sequence[Line], squares: dict[str, list[Square]], suffix: str = "") -> Figure:
    labels = lines[0].runs[0].labels
    bars = []
    for line in lines:
        each = [[100 * row[c] / max(1, sum(row)) for c, row in enumerate(square)] for square in squares[line.name]]
        over = list(zip(*each, strict=True))
        spreads = [deviation(v) for v in over]
        bars.append(Bar(line.name, [statistics.fmean(v) for v in over], line.colour, spreads if any(spreads) else ()))
    caption = "After the last round on record: of each class's test examples, the share that is answered rightly."
    title = f"Accuracy by class: {lines[0].name}" if suffix else "Accuracy by class"
    return Bars(f"classes{suffix}", title, caption, "class", "right answers / %", labels, bars, top=100)


def _confusion(line: Line, squares: list[Square]) -> Figure:
    seeds = f", added up over {len(squares)} seeds" if len(squares) > 1 else ""
    key = f"confusion{line.suffix}"
    caption = f"After the last round on record{seeds}. A row is a true class and adds up to 100 %."
    return Heat(
        key, f"Confusion: {line.name}", caption, "answered class", "true class", line.runs[0].labels, _added(squares)
    )
