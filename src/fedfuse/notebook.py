"""What notebooks show: HTML tables, small curves as SVG, and a line that is replaced while work goes on."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any

from rich.console import Console

COLOURS = ("#2a6f97", "#d1495b", "#3a9d6e", "#c98a1b", "#7a5195", "#5c6770")
WIDTH, HEIGHT, MARGIN = 280, 90, 8
OFTEN = 0.1  # seconds between two updates of a line: each is a message to the browser


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    return Console().is_jupyter


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table. All text is escaped."""
    head = f"<tr>{''.join(f'<th>{_text(cell)}</th>' for cell in header)}</tr>" if header else ""
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<div><b>{_text(title)}</b><table><thead>{head}</thead><tbody>{body}</tbody></table></div>"


def curve(series: Mapping[str, Sequence[float]], what: str = "test accuracy by round") -> str:
    """Return a small picture of accuracies over time, as SVG: a line per name, on one scale, written beside it."""
    values = [value for line in series.values() for value in line]
    if not values:
        return ""
    low, high, longest = min(values), max(values), max(map(len, series.values()))
    names = list(series) if len(series) > 1 else []
    height = HEIGHT + 16 * len(names)
    lines = "".join(
        _line(line, low, high, longest, COLOURS[number % len(COLOURS)]) for number, line in enumerate(series.values())
    )
    legend = "".join(
        f'<text x="{MARGIN}" y="{HEIGHT + 16 * number + 10}" fill="{COLOURS[number % len(COLOURS)]}">'
        f"{_text(name)}</text>"
        for number, name in enumerate(names)
    )
    right = WIDTH + 4
    scale = f'<text x="{right}" y="{MARGIN + 4}">{100 * high:.1f} %</text>'
    if high > low:
        scale += f'<text x="{right}" y="{HEIGHT - MARGIN + 4}">{100 * low:.1f} %</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 60}" height="{height}" role="img" '
        f'aria-label="{_text(what)}" font-family="sans-serif" font-size="11" fill="currentColor">'
        f"<title>{_text(what)}</title>{lines}{scale}{legend}</svg>"
    )


def _line(values: Sequence[float], low: float, high: float, longest: int, colour: str) -> str:
    across = (WIDTH - 2 * MARGIN) / max(1, longest - 1)
    up = (HEIGHT - 2 * MARGIN) / (high - low) if high > low else 0.0
    points = [(MARGIN + across * i, HEIGHT - MARGIN - up * (value - low)) for i, value in enumerate(values)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    end = f'<circle cx="{points[-1][0]:.1f}" cy="{points[-1][1]:.1f}" r="2.5" fill="{colour}"/>' if points else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>{end}'


def _text(value: object) -> str:
    return html.escape(str(value))


class LiveLine:
    """A line in the output of a cell, which every `show` replaces."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = 0.0

    def show(self, text: str, *, now: bool = False) -> None:
        """Show this text. Without `now`, it is left out soon after another."""
        if not now and perf_counter() - self._shown < OFTEN:
            return
        from IPython.display import display  # where there is a notebook, there is IPython

        content = {"text/plain": text, "text/html": f'<span style="font-family: monospace">{_text(text)}</span>'}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)
        self._shown = perf_counter()
