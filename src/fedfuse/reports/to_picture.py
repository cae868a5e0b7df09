"""Draw a figure for a paper with matplotlib, as .svg, .pdf or .png, in the page's colours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from fedfuse.data.picture import panel
from fedfuse.reports.figure import Bars, Curves, Dots, Figure, Heat, Parallel, heights_of, shades
from fedfuse.types import FedfuseError

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7a5195", "#7f8c95", "#1b1f23", "#a3263a")
INK, SOFT, FAINT = "#1d2730", "#5b6975", "#e4e9ed"
DASHES = {"solid": "-", "dash": "--", "dot": ":"}
VEIL = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.8}
UNDATED: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
LEGEND = 76  # characters of a legend over a picture's whole width
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "text.color": INK,
    "svg.fonttype": "none",  # keep text as text
    "svg.hashsalt": "fedfuse",  # the same numbers give the same file
    "legend.frameon": False,
}


def draw(figure: Figure, paths: Sequence[Path]) -> None:
    """Write the picture to each path; the suffix selects the format."""
    check_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure as Sheet
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with matplotlib.rc_context(STYLE):
        sheet = Sheet(
            figsize=_inches(figure), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06), facecolor="white"
        )
        axes = sheet.subplots()
        _draw_on(figure, axes)
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            sheet.savefig(path, dpi=200, metadata=UNDATED.get(path.suffix))


def check_matplotlib() -> None:
    """Raise an error where matplotlib is not installed: before work whose result is a picture."""
    if find_spec("matplotlib") is None:
        raise FedfuseError('pictures need matplotlib: pip install "fedfuse[plots]"')


def colour(index: int) -> str:
    return PALETTE[index % len(PALETTE)]


def _inches(figure: Figure) -> tuple[float, float]:
    if isinstance(figure, Heat):
        return (5.2, 4.6)
    if isinstance(figure, Dots):
        return (min(9.0, max(4.2, 0.34 * len(figure.counts) + 1)), min(9.0, max(2.4, 0.28 * len(figure.labels) + 0.9)))
    if isinstance(figure, Bars) and figure.sideways:
        each = 0.34 if figure.zoomed else 0.2
        thick = 0.34 if figure.stacked else 0.14 + each * len(figure.bars)
        return (5.6, max(1.9, thick * len(figure.categories) + 1.2))
    lines = -(-len(figure.series) // _columns([s.name for s in figure.series])) if isinstance(figure, Curves) else 1
    return (5.6, 3.4 + 0.16 * max(0, lines - 2))


@singledispatch
def _draw_on(figure: Any, axes: Any) -> None:
    raise TypeError(f"{type(figure).__name__} is not a figure")


def _label_axes(axes: Any, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def _legend(axes: Any, entries: int, beside: Sequence[str] = ()) -> None:
    """Write a legend above the axes, where it hides nothing. beside: names on their left, which take of its room."""
    if entries > 1:
        columns = _columns(axes.get_legend_handles_labels()[1], LEGEND - max(map(len, beside), default=0))
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, borderaxespad=0.2, fontsize=8)


def _columns(names: Sequence[str], room: int = LEGEND) -> int:
    """Return how many columns of a legend fit into so many characters."""
    return max(1, min(len(names), room // (max(map(len, names)) + 7)))


@_draw_on.register
def _(figure: Curves, axes: Any) -> None:
    for series in figure.series:
        paint = colour(series.colour)
        if any(series.deviation):
            low = [y - d for y, d in zip(series.y, series.deviation, strict=True)]
            high = [y + d for y, d in zip(series.y, series.deviation, strict=True)]
            axes.fill_between(series.x, low, high, color=paint, alpha=0.15, linewidth=0)
        markers = {"marker": "o", "markersize": 2.6} if len(series.x) <= 25 else {}
        axes.plot(series.x, series.y, DASHES[series.dash], color=paint, label=series.name, linewidth=1.5, **markers)
    for name, level in figure.levels.items():
        axes.axhline(level, color=SOFT, linewidth=0.8, linestyle=":")
        axes.annotate(
            name, (0.01, level), xycoords=("axes fraction", "data"), ha="left", va="bottom", color=SOFT, fontsize=8
        )
    if figure.diagonal:
        axes.plot([0, 100], [0, 100], ":", color=SOFT, linewidth=0.8)
    if figure.whole:
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(color=FAINT, linewidth=0.6)
    _label_axes(axes, figure.x_title, figure.y_title)
    _legend(axes, len(figure.series) + figure.diagonal)


@_draw_on.register
def _(figure: Bars, axes: Any) -> None:
    if figure.zoomed:
        _draw_marks(figure, axes)
        return
    places = list(range(len(figure.categories)))
    wide = 0.75 if figure.stacked else 0.8 / len(figure.bars)
    below = [0.0] * len(places)
    draw_bars, error = (axes.barh, "xerr") if figure.sideways else (axes.bar, "yerr")
    for number, bar in enumerate(figure.bars):
        values = [0.0 if v is None else v for v in bar.values]
        shift = 0.0 if figure.stacked else (number - (len(figure.bars) - 1) / 2) * wide
        base = {"left" if figure.sideways else "bottom": list(below)} if figure.stacked else {}
        spread = (
            {error: list(bar.deviation), "error_kw": {"ecolor": SOFT, "elinewidth": 0.8}} if any(bar.deviation) else {}
        )
        draw_bars([p + shift for p in places], values, wide, color=colour(bar.colour), label=bar.name, **base, **spread)
        below = [b + v for b, v in zip(below, values, strict=True)] if figure.stacked else below
    if figure.sideways:
        axes.set_yticks(places, figure.categories)
        axes.set_ylim(len(places) - 0.4, -0.6)
        axes.axvline(0, color=SOFT, linewidth=0.8)
        _label_axes(axes, figure.y_title, figure.x_title)
    else:
        crowded = sum(map(len, figure.categories)) > 60
        axes.set_xticks(places, figure.categories, rotation=60 if crowded else 0, ha="right" if crowded else "center")
        _label_axes(axes, figure.x_title, figure.y_title)
    axes.grid(color=FAINT, linewidth=0.6, axis="x" if figure.sideways else "y")
    if figure.top is not None:
        (axes.set_xlim if figure.sideways else axes.set_ylim)(0, figure.top)
    _legend(axes, len(figure.bars), figure.categories if figure.sideways else ())


def _draw_marks(figure: Bars, axes: Any) -> None:
    for number, bar in enumerate(figure.bars):
        places, spreads = figure.places(number), bar.deviation or [0.0] * len(bar.values)
        points = [(v, p, d) for v, p, d in zip(bar.values, places, spreads, strict=True) if v is not None]
        values, heights, errors = (list(column) for column in zip(*points, strict=True)) if points else ([], [], [])
        axes.errorbar(
            values, heights, xerr=errors if any(errors) else None, fmt="o", color=colour(bar.colour), label=bar.name,
            markersize=4, elinewidth=1,
        )  # fmt: skip
        above = {"xytext": (0, 4), "textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": 7}
        for value, height, text in zip(bar.values, places, bar.texts, strict=False):
            if value is not None:
                axes.annotate(text, (value, height), **above)
    axes.set_yticks(range(len(figure.categories)), figure.categories)
    axes.set_ylim(len(figure.categories) - 0.5, -0.5)
    axes.margins(x=0.12)
    axes.grid(color=FAINT, linewidth=0.6, axis="x")
    _label_axes(axes, figure.y_title, figure.x_title)
    _legend(axes, len(figure.bars), figure.categories)


@_draw_on.register
def _(figure: Dots, axes: Any) -> None:
    counts = torch.tensor(figure.counts)
    width, _ = _inches(figure)
    panel(axes, "", counts, figure.labels, 72 * (width - 0.8) / len(counts), int(counts.max()))
    axes.set_xlabel(figure.x_title, color=INK)


@_draw_on.register
def _(figure: Heat, axes: Any) -> None:
    shares = figure.shares
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=100)
    few = len(figure.labels) <= 12
    if few:
        for i, row in enumerate(shares):
            for j, value in enumerate(row):
                axes.text(
                    j, i, f"{value:.0f}", ha="center", va="center", fontsize=7, color="white" if value > 60 else INK
                )
    step = -(-len(figure.labels) // 25)
    long = max(map(len, figure.labels), default=0) > 3
    axes.set_xticks(range(0, len(figure.labels), step), figure.labels[::step], rotation=90 if long else 0)
    axes.set_yticks(range(0, len(figure.labels), step), figure.labels[::step])
    axes.figure.colorbar(image, ax=axes, label="%", shrink=0.85).outline.set_visible(False)
    _label_axes(axes, figure.x_title, figure.y_title)


@_draw_on.register
def _(figure: Parallel, axes: Any) -> None:
    import matplotlib

    heights = [heights_of(axis) for axis in figure.axes]
    shade = matplotlib.colormaps["Blues"]
    for number, level in enumerate(shades(figure)):
        axes.plot(
            range(len(heights)), [column[number] for column in heights], color=shade(0.25 + 0.7 * level), linewidth=1.2
        )
    for place, axis in enumerate(figure.axes):
        axes.axvline(place, color=FAINT, linewidth=0.8, zorder=0)
        for text, height in axis.marks():
            axes.annotate(
                text,
                (place, height),
                xytext=(-3, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=7,
                bbox=VEIL,
            )
    axes.set_xticks(range(len(heights)), [axis.name for axis in figure.axes])
    axes.set_xlim(-0.4, len(heights) - 0.9)
    axes.tick_params(length=0, top=False, labeltop=True, labelbottom=False)
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
