"""Draw a partition as in the papers, one dot per client and class (FedDF, Figure 2), and summarise it in numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fedfuse.data.federation import Federation
from fedfuse.data.partition import label_entropy
from fedfuse.types import FedfuseError

ACCENT, INK, FAINT = "#2a6f97", "#26323a", "#dfe5e9"
LARGEST = 1.1  # width of the largest dot, in distances between two clients; large dots are rarely neighbours
NAMED = 20  # the axis shows class names up to this number of classes


@dataclass(frozen=True)
class Row:
    """The numbers of one client."""

    client: int
    examples: int
    counts: tuple[int, ...]  # (C,)
    entropy: float  # of its labels, in nats
    present: int  # number of classes that it has


def summary(federation: Federation) -> list[Row]:
    """One row per client."""
    entropies = label_entropy(federation.counts).tolist()
    return [
        Row(client, sum(counts), tuple(counts), entropy, sum(n > 0 for n in counts))
        for client, (counts, entropy) in enumerate(zip(federation.counts.tolist(), entropies, strict=True))
    ]


def draw(panels: Mapping[str, tuple[Tensor, Sequence[str]]], path: Path, *, title: str = "") -> None:
    """Write a picture to `path` (.svg, .png or .pdf), all panels on one scale.

    panels: by name, the counts (K, C) and the names of the classes (C,).
    """
    if path.suffix not in {".svg", ".png", ".pdf"}:
        raise FedfuseError(f"{path} ends in {path.suffix!r}: a picture is .svg, .png or .pdf")
    if not panels:
        raise FedfuseError(f"{path}: there is nothing to draw: give at least one panel")
    most = max(int(counts.max()) for counts, _ in panels.values())
    figure, axes, pitch = _figure(panels, title, f"client  (largest dot: {most:,} examples)")
    for number, (axis, (name, (counts, labels))) in enumerate(zip(axes, panels.items(), strict=True)):
        panel(axis, name, counts, labels, pitch, most, first=number == 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)


def _figure(panels: Mapping[str, tuple[Tensor, Sequence[str]]], title: str, below: str) -> tuple[Any, Any, float]:
    """The figure, its axes and the distance between two dots in points."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise FedfuseError('pictures need matplotlib: pip install "fedfuse[plots]"') from error
    clients, classes = (max(counts.shape[axis] for counts, _ in panels.values()) for axis in (0, 1))
    alike = len({tuple(labels) for _, labels in panels.values()}) == 1
    # The distance between dots shrinks with the number of clients, classes and panels: the figure must fit a screen.
    inch = min(0.34, 13 / clients / len(panels), 9 / clients, 9 / classes)
    width = (max(2.2, inch * clients) + 0.2) * len(panels) + 1.1
    height = max(1.6, inch * classes) + 1.1
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
    figure = Figure(figsize=(width, height), layout=layout, facecolor="white")
    axes = figure.subplots(1, len(panels), sharey=alike, squeeze=False)[0]
    if title:
        wrapped = textwrap.fill(title, int(width * 72 / (0.62 * 11)))  # a bold letter is about 0.62 of its height wide
        figure.suptitle(wrapped, fontsize=11, color=INK, fontweight="bold")
    figure.supxlabel(below, fontsize=9, color=INK)
    return figure, axes, 72 * inch


def panel(
    axis: Any, name: str, counts: Tensor, labels: Sequence[str], pitch: float, most: int, *, first: bool = True
) -> None:
    """Draw a dot for each client and class of counts (K, C) on matplotlib's `axis`. `pitch` is in points."""
    clients, classes = counts.shape
    k, c = counts.nonzero(as_tuple=True)
    area = counts[k, c].double() / max(1, most) * (LARGEST * pitch) ** 2  # matplotlib's s is a dot's width squared
    axis.set_axisbelow(True)
    axis.grid(color=FAINT, linewidth=0.6)
    axis.scatter(k.numpy(), c.numpy(), s=area.numpy(), color=ACCENT, alpha=0.9, linewidths=0, clip_on=False, zorder=3)
    axis.set_xlim(-0.7, clients - 0.3)
    axis.set_ylim(classes - 0.3, -0.7)  # the first class on top, as in a table
    axis.set_xticks(_ticks(clients))
    axis.set_title(name, color=INK, fontsize=10, pad=10)
    if classes <= NAMED:
        axis.set_yticks(range(classes), labels)
    else:
        axis.set_yticks(_ticks(classes))
    if first:
        axis.set_ylabel("class", color=INK, fontsize=9)
    axis.tick_params(length=0, labelsize=8, colors=INK)
    for spine in axis.spines.values():
        spine.set_visible(False)


def _ticks(number: int) -> list[int]:
    """At most about a dozen round positions."""
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**9) if number / s <= 12)
    return list(range(0, number, step))
