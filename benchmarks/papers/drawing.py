"""The pictures of the paper benchmarks, in one style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

COLOURS = ["#8a949b", "#2a6f97", "#c8553d", "#588157", "#7b5ea7"]  # the first is the baseline's
INK, FAINT = "#26323a", "#dfe5e9"


def panels(count: int, width: float = 5.2, height: float = 3.8) -> tuple[Figure, list[Axes]]:
    """A row of quiet axes."""
    figure = Figure(figsize=(width * count, height), layout="constrained")
    axes = [figure.add_subplot(1, count, i + 1) for i in range(count)]
    for axis in axes:
        axis.grid(color=FAINT, linewidth=0.8)
        axis.set_axisbelow(True)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))  # rounds are whole
        axis.tick_params(length=0, colors=INK)
        for side in axis.spines.values():
            side.set_visible(False)
    return figure, axes


def save(figure: Figure, path: Path) -> None:
    """As PNG and as SVG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=160)


def band(axis: Axes, runs: Sequence[Sequence[float]], label: str, colour: str, style: str = "-") -> None:
    """The mean over the seeds (S, T), in percent, and behind it one deviation to either side."""
    values = 100 * np.asarray(runs)
    rounds = np.arange(1, values.shape[1] + 1)
    mean, deviation = values.mean(0), values.std(0)
    axis.plot(rounds, mean, style, color=colour, linewidth=2, label=label)
    if len(values) > 1:
        axis.fill_between(rounds, mean - deviation, mean + deviation, color=colour, alpha=0.12, linewidth=0)


def curves(
    lines: Mapping[str, Sequence[Sequence[float]]],
    path: Path,
    title: str,
    target: float | None = None,
    legend: str = "lower right",
) -> None:
    """Accuracy over rounds, a line per algorithm."""
    figure, (axis,) = panels(1, 6.4, 4.2)
    for (name, runs), colour in zip(lines.items(), COLOURS, strict=False):
        band(axis, runs, name, colour)
    if target is not None:
        axis.axhline(100 * target, color=INK, linewidth=0.8, linestyle=(0, (4, 4)))
    axis.set_title(title, color=INK, fontsize=11, loc="left")
    axis.set_xlabel("round", color=INK)
    axis.set_ylabel("test accuracy, %", color=INK)
    axis.legend(frameon=False, labelcolor=INK, loc=legend)
    save(figure, path)
