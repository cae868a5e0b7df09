"""What the last round's models answer, by class."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from fedfuse.records.statistics import deviation
from fedfuse.reports.elements import Choice, Section
from fedfuse.reports.figure import Bar, Bars, Figure, Heat
from fedfuse.reports.variants import Variant

Square = list[list[int]]
MOST_BARS = 100  # side by side; where there would be more, each line has a figure of its own


def section(variants: Sequence[Variant]) -> Section | None:
    squares = {variant.name: _squares(variant) for variant in variants}
    known = [variant for variant in variants if squares[variant.name]]
    if not known:
        return None
    heats = {variant.name: _confusion(variant, squares[variant.name]) for variant in known}
    if len(known) == 1:
        return Section("classes", "Classes", [_by_class(known, squares), heats[known[0].name]])
    if len(known) * len(known[0].runs[0].labels) > MOST_BARS:
        pairs = {
            variant.name: [_by_class([variant], squares, variant.suffix), heats[variant.name]] for variant in known
        }
        return Section("classes", "Classes", [Choice("classes", pairs)])
    choice = Choice("confusion", {name: [heat] for name, heat in heats.items()})
    return Section("classes", "Classes", [_by_class(known, squares), choice])


def _squares(variant: Variant) -> list[Square]:
    """Each seed's confusion, added up over the models that the run reports."""
    each = [[details.confusion for details in run.reported_details()] for run in variant.runs]
    return [_added(confusions) for confusions in each if confusions]


def _added(squares: Sequence[Square]) -> Square:
    return [[sum(cells) for cells in zip(*rows, strict=True)] for rows in zip(*squares, strict=True)]


def _by_class(variants: Sequence[Variant], squares: dict[str, list[Square]], suffix: str = "") -> Figure:
    labels = variants[0].runs[0].labels
    bars = []
    for variant in variants:
        each = [[100 * row[c] / max(1, sum(row)) for c, row in enumerate(square)] for square in squares[variant.name]]
        over = list(zip(*each, strict=True))
        spreads = [deviation(v) for v in over]
        bars.append(
            Bar(variant.name, [statistics.fmean(v) for v in over], variant.colour, spreads if any(spreads) else ())
        )
    caption = "After the last round on record: of each class's test examples, the share that is answered rightly."
    title = f"Accuracy by class: {variants[0].name}" if suffix else "Accuracy by class"
    return Bars(f"classes{suffix}", title, caption, "class", "right answers / %", labels, bars, top=100)


def _confusion(variant: Variant, squares: list[Square]) -> Figure:
    seeds = f", added up over {len(squares)} seeds" if len(squares) > 1 else ""
    key = f"confusion{variant.suffix}"
    caption = f"After the last round on record{seeds}. A row is a true class and adds up to 100 %."
    return Heat(
        key,
        f"Confusion: {variant.name}",
        caption,
        "answered class",
        "true class",
        variant.runs[0].labels,
        _added(squares),
    )
