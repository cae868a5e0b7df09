"""Accuracy by class and confusion matrices of the last round's models."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from fedfuse.records.statistics import deviation
from fedfuse.reports.elements import Choice, Section
from fedfuse.reports.figure import Bar, Bars, Figure, Heat
from fedfuse.reports.variants import Variant

Square = list[list[int]]
MOST_BARS = 100  # in one figure; if there are more, each variant has its own figure


def section(variants: Sequence[Variant]) -> Section | None:
    squares = {variant.name: _squares(variant) for variant in variants}
    variants = [variant for variant in variants if squares[variant.name]]
    if not variants:
        return None
    heats = {variant.name: _confusion(variant, squares[variant.name]) for variant in variants}
    if len(variants) == 1:
        return Section("classes", "Classes", [_by_class(variants, squares), heats[variants[0].name]])
    if len(variants) * len(variants[0].runs[0].labels) > MOST_BARS:
        pairs = {
            variant.name: [_by_class([variant], squares, variant.suffix), heats[variant.name]] for variant in variants
        }
        return Section("classes", "Classes", [Choice("classes", pairs)])
    choice = Choice("confusion", {name: [heat] for name, heat in heats.items()})
    return Section("classes", "Classes", [_by_class(variants, squares), choice])


def _squares(variant: Variant) -> list[Square]:
    """Return each seed's confusion matrix, summed over the models that the run reports."""
    each = [[details.confusion for details in run.reported_details()] for run in variant.runs]
    return [_sum(confusions) for confusions in each if confusions]


def _sum(squares: Sequence[Square]) -> Square:
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
    caption = "After the last evaluated round: the share of each class's test examples that is classified correctly."
    title = f"Accuracy by class: {variants[0].name}" if suffix else "Accuracy by class"
    return Bars(f"classes{suffix}", title, caption, "class", "right answers / %", labels, bars, top=100)


def _confusion(variant: Variant, squares: list[Square]) -> Figure:
    seeds = f", summed over {len(squares)} seeds" if len(squares) > 1 else ""
    key = f"confusion{variant.suffix}"
    caption = f"After the last evaluated round{seeds}. Each row is a true class and sums to 100 %."
    return Heat(
        key,
        f"Confusion: {variant.name}",
        caption,
        "answered class",
        "true class",
        variant.runs[0].labels,
        _sum(squares),
    )
