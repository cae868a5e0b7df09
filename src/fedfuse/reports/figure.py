"""Figures as values, independent of how they are drawn.

A figure holds its numbers in the units of its axes. The page draws it with plotly (`to_plotly.py`), pictures for papers
are drawn with matplotlib (`to_picture.py`), and `numbers` returns its values as a table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Cell = str | float | int | None
Dash = Literal["solid", "dash", "dot"]


@dataclass(frozen=True)
class Numbers:
    """A table of plain values, for CSV."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Series:
    """One curve. `colour` is an index into the palette."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: int
    deviation: Sequence[float] = ()  # drawn as a band, unless all 0
    dash: Dash = "solid"


@dataclass(frozen=True)
class Curves:
    key: str  # file name, and id on the page
    title: str
    caption: str
    x_title: str
    y_title: str
    series: Sequence[Series]
    levels: Mapping[str, float] = field(default_factory=dict)  # horizontal lines by label
    diagonal: bool = False  # from (0, 0) to (100, 100)
    whole: bool = True  # x is an integer

    def numbers(self) -> Numbers:
        rows: list[list[Cell]] = []
        for s in self.series:
            spread = s.deviation or [0.0] * len(s.x)
            rows += [[s.name, x, y, d] for x, y, d in zip(s.x, s.y, spread, strict=True)]
        return Numbers(["series", self.x_title, self.y_title, "deviation"], rows)


@dataclass(frozen=True)
class Bar:
    """One bar per category; None draws no bar."""

    name: str
    values: Sequence[float | None]
    colour: int
    deviation: Sequence[float] = ()
    texts: Sequence[str] = ()  # beside each value; by default the values, where there is room

    def reach(self) -> list[tuple[float, float]]:
        """Return the values that are not None, each with its deviation."""
        spread = self.deviation or [0.0] * len(self.values)
        return [(v, d) for v, d in zip(self.values, spread, strict=True) if v is not None]


@dataclass(frozen=True)
class Bars:
    key: str
    title: str
    caption: str
    x_title: str
    y_title: str
    categories: Sequence[str]
    bars: Sequence[Bar]
    stacked: bool = False
    sideways: bool = False  # categories on the vertical axis, for long names
    zoomed: bool = False  # marks instead of bars, on an axis that need not begin at 0, so that differences are seen
    top: float | None = None  # upper bound of the values

    def places(self, number: int) -> list[float]:
        """Return where the marks of a bar are on the axis of categories, beside those of the others."""
        step = 0.8 / len(self.bars)
        return [category + (number - (len(self.bars) - 1) / 2) * step for category in range(len(self.categories))]

    def numbers(self) -> Numbers:
        rows: list[list[Cell]] = []
        for bar in self.bars:
            spread = bar.deviation or [0.0] * len(bar.values)
            rows += [[bar.name, c, v, d] for c, v, d in zip(self.categories, bar.values, spread, strict=True)]
        return Numbers(["series", self.x_title, self.y_title, "deviation"], rows)


@dataclass(frozen=True)
class Dots:
    """Clients by classes; the area of a dot is a count (FedDF, Figure 2)."""

    key: str
    title: str
    caption: str
    x_title: str
    y_title: str
    labels: Sequence[str]  # of y
    counts: Sequence[Sequence[int]]  # (K, C)

    @property
    def points(self) -> list[tuple[int, int, int]]:
        """(client, class, examples), where there are any examples."""
        return [(k, c, n) for k, row in enumerate(self.counts) for c, n in enumerate(row) if n]

    def numbers(self) -> Numbers:
        return Numbers([self.x_title, self.y_title, "examples"], [[k, self.labels[c], n] for k, c, n in self.points])


@dataclass(frozen=True)
class Heat:
    """A confusion matrix: rows are true classes, columns predicted classes."""

    key: str
    title: str
    caption: str
    x_title: str
    y_title: str
    labels: Sequence[str]
    counts: Sequence[Sequence[int]]  # (C, C)

    @property
    def shares(self) -> list[list[float]]:
        """Each row in percent of its sum."""
        return [[100 * n / max(1, sum(row)) for n in row] for row in self.counts]

    def numbers(self) -> Numbers:
        cells = [(i, j, n) for i, row in enumerate(self.counts) for j, n in enumerate(row)]
        rows: list[list[Cell]] = [[self.labels[i], self.labels[j], n] for i, j, n in cells]
        return Numbers([self.y_title, self.x_title, "examples"], rows)


@dataclass(frozen=True)
class Axis:
    """One setting of a search. Categories are numbered; `ticks` maps each number to its text."""

    name: str
    values: Sequence[float]
    ticks: Mapping[float, str] = field(default_factory=dict)
    log: bool = False

    def label(self, value: float) -> str:
        return self.ticks.get(value, f"{value:.4g}")

    def height(self, value: float) -> float:
        """Return the position of a value between the lowest (0) and the highest (1)."""
        low, high, own = (self._scaled(v) for v in (min(self.values), max(self.values), value))
        return 0.5 if high == low else (own - low) / (high - low)

    def marks(self) -> list[tuple[str, float]]:
        """Return tick labels and their heights: all categories, or the lowest, middle and highest number."""
        if self.ticks:
            return [(text, self.height(v)) for v, text in self.ticks.items() if v in self.values]
        low, high = min(self.values), max(self.values)
        middle = math.sqrt(low * high) if self.log else (low + high) / 2
        if all(float(v).is_integer() for v in self.values):
            middle = round(middle)
        return [(self.label(v), self.height(v)) for v in sorted({low, middle, high})]

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.log else value


def heights_of(axis: Axis) -> list[float]:
    return [axis.height(v) for v in axis.values]


@dataclass(frozen=True)
class Parallel:
    """Trials as lines through their settings, coloured by the last axis."""

    key: str
    title: str
    caption: str
    axes: Sequence[Axis]

    def numbers(self) -> Numbers:
        columns = [[axis.ticks.get(v, v) for v in axis.values] for axis in self.axes]
        return Numbers([axis.name for axis in self.axes], [list(row) for row in zip(*columns, strict=True)])


def shades(figure: Parallel) -> list[float]:
    """Return how dark each trial's line is, from 0 to 1, by its rank on the last axis."""
    last = figure.axes[-1].values
    order = {value: rank for rank, value in enumerate(sorted(set(last)))}
    return [order[v] / max(1, len(order) - 1) for v in last]


Figure = Curves | Bars | Dots | Heat | Parallel
