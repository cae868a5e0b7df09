"""The picture of FedDF's Figure 1: decision regions of five models, with the points that each was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedfuse.data.examples import Examples
from fedfuse.reports.to_picture import INK

CLASSES = ("#2a6f97", "#e0a458", "#c8553d")
PANELS = ("Local model 1", "Local model 2", "Their average: FedAvg", "Their ensemble", "Distilled: FedDF")
TITLE = "Two models, trained apart: averaging their weights blurs them, distilling their ensemble does not"


def draw_panels(
    regions: Sequence[Tensor],  # (pixels, pixels, 3) each: probabilities of the classes
    points: Sequence[Examples],
    accuracies: Sequence[float],
    pool: Tensor,  # (N, 2)
    edge: float,
    path: Path,
) -> None:
    """Draw a panel for each model. The last one also shows the unlabeled points."""
    from matplotlib.figure import Figure  # slow to import

    figure = Figure(figsize=(13.2, 3.75), facecolor="white")
    for number, title in enumerate(PANELS):
        axis = figure.add_axes((0.012 + number * 0.1975, 0.11, 0.186, 0.655))
        _regions(axis, regions[number], edge)
        _points(axis, points[number])
        if number == len(PANELS) - 1:
            axis.scatter(pool[:, 0].numpy(), pool[:, 1].numpy(), s=11, marker="x", color=INK, linewidths=0.8)
        _label(axis, title, f"{100 * accuracies[number]:.0f}% of the test points right", edge)
    figure.text(0.012, 0.935, TITLE, fontsize=13, fontweight="bold", color=INK)
    _legend(figure, len(pool))
    figure.savefig(path, dpi=160)


def _regions(axis: Any, probs: Tensor, edge: float) -> None:
    """Draw the classes' colours, mixed by their probabilities, and where the likeliest class changes."""
    from matplotlib.colors import to_rgb

    pale = 0.5 * torch.tensor([to_rgb(colour) for colour in CLASSES]) + 0.5  # so that the points stand out
    axis.imshow((probs @ pale).numpy(), origin="lower", extent=(-edge, edge, -edge, edge), interpolation="bilinear")
    line = torch.linspace(-edge, edge, len(probs)).numpy()
    for label in range(3):
        others = torch.cat((probs[..., :label], probs[..., label + 1 :]), -1).amax(-1)
        margin = probs[..., label] - others
        if bool((margin > 0).any()) and bool((margin < 0).any()):
            axis.contour(line, line, margin.numpy(), levels=[0.0], colors="white", linewidths=1.0)


def _points(axis: Any, examples: Examples) -> None:
    colours = [CLASSES[label] for label in examples.y.tolist()]
    axis.scatter(*examples.tensor.T.numpy(), s=13, c=colours, edgecolor="white", linewidths=0.4)


def _label(axis: Any, title: str, below: str, edge: float) -> None:
    axis.set_xlim(-edge, edge)
    axis.set_ylim(-edge, edge)
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set_visible(False)
    axis.set_title(title + "\n", loc="left", fontsize=10, fontweight="bold", color=INK, pad=3)
    axis.text(0, 1.025, below, transform=axis.transAxes, fontsize=8.5, color=INK)


def _legend(figure: Any, pool: int) -> None:
    from matplotlib.lines import Line2D

    dots = [Line2D([], [], marker="o", ls="", color=c, markersize=5) for c in CLASSES]
    cross = Line2D([], [], marker="x", ls="", color=INK, markersize=5)
    names = ["client 1 only", "both clients", "client 2 only", f"the {pool} unlabeled points of the pool"]
    figure.legend([*dots, cross], names, loc="lower left", bbox_to_anchor=(0.004, -0.005), ncols=4, frameon=False,
                  fontsize=8.5, labelcolor=INK, handletextpad=0.2, columnspacing=1.6)  # fmt: skip
