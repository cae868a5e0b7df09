"""Convert a figure to plotly's JSON. Colours are names (`@0`, `@ink`), which the page replaces by its theme's."""

from __future__ import annotations

import html
from functools import singledispatch
from typing import Any

from fedfuse.reports.figure import Bars, Curves, Dots, Heat, Parallel, Series, heights_of, shades

Plotly = dict[str, Any]


@singledispatch
def to_plotly(figure: Any) -> Plotly:
    """Return `data`, `layout` and the height in pixels."""
    raise TypeError(f"{type(figure).__name__} is not a figure")


def _axis(title: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": title, "standoff": 12}, "automargin": True, **more}


@to_plotly.register
def _(figure: Curves) -> Plotly:
    data: list[dict[str, Any]] = []
    for series in figure.series:
        data += _band(series)
        data.append(_line(series, figure))
    shapes: list[dict[str, Any]] = [
        {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": _thin}
        for y in figure.levels.values()
    ]
    notes = [
        {"xref": "paper", "x": 0, "xanchor": "left", "y": y, "yanchor": "bottom", "text": name, "showarrow": False}
        for name, y in figure.levels.items()
    ]
    if figure.diagonal:
        shapes.append({"type": "line", "x0": 0, "y0": 0, "x1": 100, "y1": 100, "line": _thin})
    whole = {"tickformat": ",d"} if figure.whole and _short(figure) else {}
    few = figure.whole and max((x for s in figure.series for x in s.x), default=0) <= FEW
    x = _axis(figure.x_title, **whole, **({"dtick": 1} if few else {}))  # else plotly would label halves, rounded
    layout = {"xaxis": x, "yaxis": _axis(figure.y_title), "shapes": shapes, "annotations": notes, "showlegend": True}
    return {
        "data": data,
        "layout": {**layout, "hovermode": "x unified" if figure.whole else "closest"},
        "height": _height(len(figure.series)),
    }


FEW = 10  # whole numbers that are all labelled
CROWD = 36  # bars that are wide enough for a line of their deviation


def _height(entries: int) -> int:
    """Return the height in pixels. The legend above the plot, about three entries per row, must not shrink it."""
    return 380 + 20 * ((entries - 1) // 3)


_thin = {"color": "@soft", "width": 1, "dash": "dot"}


def _short(figure: Curves) -> bool:
    return all(len(s.x) < 10_000 for s in figure.series)


def _line(series: Series, figure: Curves) -> dict[str, Any]:
    few = len(series.x) <= 25
    spread = any(series.deviation)
    return {
        "type": "scatter",
        "mode": "lines+markers" if few else "lines",
        "name": series.name,
        "legendgroup": series.name,
        "x": list(series.x),
        "y": list(series.y),
        "line": {"color": f"@{series.colour}", "width": 2.2, "dash": series.dash},
        "marker": {"size": 5},
        "customdata": list(series.deviation) if spread else None,
        "hovertemplate": "%{y:.2f}" + (" ± %{customdata:.2f}" if spread else ""),
    }


def _band(series: Series) -> list[dict[str, Any]]:
    """Return a band of one deviation to each side, in the legend group of its curve."""
    if not any(series.deviation):
        return []
    low = [y - d for y, d in zip(series.y, series.deviation, strict=True)]
    high = [y + d for y, d in zip(series.y, series.deviation, strict=True)]
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": series.name,
            "legendgroup": series.name,
            "showlegend": False,
            "x": [*series.x, *reversed(series.x)],
            "y": [*high, *reversed(low)],
            "fill": "toself",
            "fillcolor": f"@{series.colour}/0.16",
            "line": {"width": 0},
            "hoverinfo": "skip",
        }
    ]


@to_plotly.register
def _(figure: Bars) -> Plotly:
    if figure.zoomed:
        return _marks(figure)
    across, along = ("y", "x") if figure.sideways else ("x", "y")
    crowd = len(figure.bars) * len(figure.categories)
    with_text = not figure.stacked and crowd <= 12
    # A text at the end of a bar would be crossed by the line of its deviation; in a short bar it has no room.
    lengths = [abs(value) for bar in figure.bars for value in bar.values if value is not None]
    roomy = bool(lengths) and min(lengths) > 0.1 * max(lengths)
    at_foot = {"textposition": "inside", "insidetextanchor": "start", "textangle": 0, "constraintext": "none"}
    data = [
        {
            "type": "bar",
            "name": bar.name,
            across: list(figure.categories),
            along: list(bar.values),
            "orientation": "h" if figure.sideways else "v",
            "marker": {"color": f"@{bar.colour}"},
            f"error_{along}": {"type": "data", "array": list(bar.deviation), "color": "@soft", "thickness": 1.2}
            if any(bar.deviation) and crowd <= CROWD
            else None,
            "texttemplate": f"%{{{along}:.1f}}" if with_text else "",
            **(at_foot if roomy and any(bar.deviation) else {"textposition": "outside"}),
            "cliponaxis": False,
            "hovertemplate": f"%{{{across}}}: %{{{along}:.4~g}}<extra>%{{fullData.name}}</extra>",
        }
        for bar in figure.bars
    ]
    titles = {across: figure.x_title, along: figure.y_title}
    layout: dict[str, Any] = {
        "xaxis": _axis(titles["x"]),
        "yaxis": _axis(titles["y"]),
        "barmode": "stack" if figure.stacked else "group",
        "bargap": 0.25,
        "showlegend": len(figure.bars) > 1,
    }
    layout[f"{across}axis"] |= {"type": "category", "showgrid": False}
    if with_text:  # leave room for the text at the end of each bar
        most = max((v + d for b in figure.bars for v, d in b.reach()), default=1.0)
        layout[f"{along}axis"]["range"] = [0, 1.12 * most]
    if figure.top is not None:
        layout[f"{along}axis"]["range"] = [0, figure.top]
    height = _height(len(figure.bars))
    if figure.sideways:
        layout["yaxis"]["autorange"] = "reversed"  # the first on top, as in a table
        thick = 34 if figure.stacked else 14 + 20 * len(figure.bars)
        height = max(200, height - 270 + thick * len(figure.categories))
    return {"data": data, "layout": layout, "height": height}


def _marks(figure: Bars) -> Plotly:
    """Draw a mark for each value, with its deviation to both sides and its text above."""
    data = [
        {
            "type": "scatter",
            "mode": "markers+text",
            "name": bar.name,
            "x": list(bar.values),
            "y": figure.places(number),
            "marker": {"color": f"@{bar.colour}", "size": 9},
            "error_x": {"type": "data", "array": list(bar.deviation), "color": f"@{bar.colour}", "thickness": 1.5}
            if any(bar.deviation)
            else None,
            "text": list(bar.texts),
            "textposition": "top center",
            "textfont": {"size": 11, "color": "@ink"},
            "cliponaxis": False,
            "customdata": list(figure.categories),
            "hovertemplate": "%{customdata}: %{x:.2f}<extra>%{fullData.name}</extra>",
        }
        for number, bar in enumerate(figure.bars)
    ]
    ends = [end for bar in figure.bars for value, spread in bar.reach() for end in (value - spread, value + spread)]
    margin = 0.25 * (max(ends) - min(ends)) if ends and max(ends) > min(ends) else 1.0  # room for the texts
    count = len(figure.categories)
    y = _axis(figure.x_title, tickvals=list(range(count)), ticktext=list(figure.categories), showgrid=False)
    lines = [
        {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": i - 0.5, "y1": i - 0.5, "line": _thin}
        for i in range(1, count)
    ]
    layout = {
        "xaxis": _axis(figure.y_title, range=[min(ends) - margin, max(ends) + margin] if ends else None),
        "yaxis": {**y, "range": [count - 0.5, -0.5], "zeroline": False},
        "shapes": lines,
        "showlegend": len(figure.bars) > 1,
        "hovermode": "closest",
    }
    return {"data": data, "layout": layout, "height": 110 + count * (20 + 34 * len(figure.bars))}


@to_plotly.register
def _(figure: Dots) -> Plotly:
    points = figure.points
    most = max((n for _, _, n in points), default=1)
    data = {
        "type": "scatter",
        "mode": "markers",
        "x": [k for k, _, _ in points],
        "y": [figure.labels[c] for _, c, _ in points],
        "customdata": [n for _, _, n in points],
        "marker": {
            "size": [n for _, _, n in points],
            "sizemode": "area",
            "sizeref": 2 * most / 26**2,  # the largest dot is 26 pixels wide
            "sizemin": 1.5,
            "color": "@0",
            "opacity": 0.85,
            "line": {"width": 0},
        },
        "hovertemplate": "client %{x}, class %{y}: %{customdata:,} examples<extra></extra>",
    }
    y = _axis(figure.y_title, type="category", categoryorder="array", categoryarray=list(figure.labels))
    clients = len(figure.counts)
    x = _axis(figure.x_title, range=[-0.8, clients - 0.2], tickformat=",d", zeroline=False)
    if clients <= 25:
        x["dtick"] = 1 if clients <= 12 else 2
    layout = {"xaxis": x, "yaxis": {**y, "autorange": "reversed"}, "hovermode": "closest"}
    return {"data": [data], "layout": layout, "height": min(900, max(300, 120 + 26 * len(figure.labels)))}


@to_plotly.register
def _(figure: Heat) -> Plotly:
    few = len(figure.labels) <= 12
    data = {
        "type": "heatmap",
        "z": figure.shares,
        "x": list(figure.labels),
        "y": list(figure.labels),
        "customdata": [list(row) for row in figure.counts],
        "colorscale": "@scale",
        "zmin": 0,
        "zmax": 100,
        "xgap": 1 if few else 0,
        "ygap": 1 if few else 0,
        "colorbar": {"title": {"text": "%", "side": "top"}, "thickness": 10, "outlinewidth": 0, "len": 0.9},
        "hovertemplate": "true %{y}, answered %{x}: %{z:.1f} % (%{customdata:,})<extra></extra>",
    }
    if few:
        data |= {"texttemplate": "%{z:.0f}", "textfont": {"size": 11}}
    axis = {"type": "category", "showgrid": False, "zeroline": False}
    x = _axis(figure.x_title, **axis, constrain="domain")
    y = _axis(figure.y_title, **axis, autorange="reversed", scaleanchor="x", constrain="domain")
    return {"data": [data], "layout": {"xaxis": x, "yaxis": y, "hovermode": "closest"}, "height": 480}


@to_plotly.register
def _(figure: Parallel) -> Plotly:
    """Draw plain lines: plotly's own parallel coordinates need WebGL, which not every browser has."""
    heights = [heights_of(axis) for axis in figure.axes]
    data = []
    for number, level in enumerate(shades(figure)):
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "x": list(range(len(heights))),
                "y": [column[number] for column in heights],
                "line": {"color": f"@shade/{level:.3f}", "width": 2},
                "marker": {"size": 6},
                "text": [f"{_plain(a.name)} = {_plain(a.label(a.values[number]))}" for a in figure.axes],
                "hovertemplate": "%{text}<extra></extra>",
                "showlegend": False,
            }
        )
    marks = [
        {
            "x": i,
            "y": height,
            "text": _plain(text),
            "showarrow": False,
            "xanchor": "right",
            "xshift": -8,
            "bgcolor": "@veil",
        }
        for i, axis in enumerate(figure.axes)
        for text, height in axis.marks()
    ]
    bare = {"showgrid": False, "zeroline": False, "automargin": True}
    x = {**bare, "tickvals": list(range(len(heights))), "ticktext": [a.name for a in figure.axes], "side": "top"}
    x |= {"showgrid": True, "range": [-0.45, len(heights) - 0.7]}
    y = {**bare, "showticklabels": False, "ticks": "", "range": [-0.08, 1.08]}
    layout = {"xaxis": x, "yaxis": y, "annotations": marks}
    return {"data": data, "layout": {**layout, "hovermode": "closest"}, "height": 400}


def _plain(text: str) -> str:
    """Escape HTML: plotly renders some of it, and the text may come from a user."""
    return html.escape(text, quote=False)
