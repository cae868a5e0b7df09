"""The picture of FedBE's Figure 1: the data, and the accuracy of every mixture of three clients over their triangle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedfuse.data.examples import Examples
from fedfuse.reports.to_picture import INK

CLASSES = ("#2a6f97", "#e0a458", "#c8553d")
SHADES = ("#f6f2e9", "#b9d3d8", "#5b9aae", "#1f5470")
CORNERS = torch.tensor([[0.5, 3**0.5 / 2], [0.0, 0.0], [1.0, 0.0]])  # of the triangle, one for each client


@dataclass(frozen=True)
class Panel:
    """One group: its test data, and the triangle of one seed. Shares are (P, 3), accuracies (P,) in 0..1."""

    title: str
    test: Examples
    seed: int
    fedavg: float
    shares: Tensor
    accuracy: Tensor
    drawn: Tensor  # shares (10, 3) of the ensemble's mixtures
    majors: Sequence[int]  # the class of which each client has most


def draw_panels(panels: Sequence[Panel], path: Path) -> None:
    """Write the picture, a row for each panel."""
    from matplotlib.figure import Figure  # slow to import

    sheet = Figure(figsize=(8.6, 4.3 * len(panels)), facecolor="white")
    grid = sheet.add_gridspec(
        len(panels), 2, width_ratios=(0.4, 0.6), left=0.03, right=0.92, bottom=0.4 / (4.3 * len(panels)),
        top=1 - 0.6 / (4.3 * len(panels)), hspace=0.32, wspace=0.05,
    )  # fmt: skip
    for number, panel in enumerate(panels):
        _data(sheet.add_subplot(grid[number, 0]), panel)
        _triangle(sheet, sheet.add_subplot(grid[number, 1]), panel)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.savefig(path, dpi=130)


def _title(axes: Any, title: str, below: str) -> None:
    axes.set_title(title + "\n", loc="left", fontsize=10, fontweight="bold", color=INK, pad=6)
    axes.text(0, 1.025, below, transform=axes.transAxes, fontsize=8.5, color=INK)


def _data(axes: Any, panel: Panel) -> None:
    test = panel.test
    axes.scatter(*test.tensor.T.numpy(), s=7, c=[CLASSES[y] for y in test.y.tolist()], linewidths=0, alpha=0.9)
    axes.set_aspect("equal", anchor="NW")
    axes.axis("off")
    _title(axes, panel.title, f"the {len(test):,} test points")


def _triangle(sheet: Any, axes: Any, panel: Panel) -> None:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.tri import TriAnalyzer, Triangulation

    cells = Triangulation(*(panel.shares @ CORNERS).T.double().numpy())
    cells.set_mask(TriAnalyzer(cells).get_flat_tri_mask())  # rounding leaves slivers along the sides
    percent = 100 * panel.accuracy.numpy()
    mesh = axes.tripcolor(
        cells, percent, shading="gouraud", cmap=LinearSegmentedColormap.from_list("accuracy", list(SHADES))
    )
    axes.tricontour(cells, percent, levels=[100 * panel.fedavg], colors=INK, linewidths=0.8, linestyles="--")
    _models(axes, panel)
    for number, ((x, y), major) in enumerate(zip(CORNERS.tolist(), panel.majors, strict=True)):
        axes.scatter(x, y, s=60, color=CLASSES[major], edgecolor="white", linewidth=1.2, zorder=5, clip_on=False)
        right, down = (0.06, 0.0) if y > 0.5 else (0.0, 0.05)
        axes.text(x + right, y - down, f"client {number + 1}", fontsize=8.5, color=INK,
                  ha="left" if right else "center", va="top" if down else "center")  # fmt: skip
    axes.set(xlim=(-0.18, 1.18), ylim=(-0.15, 0.96), aspect="equal")
    axes.axis("off")
    _title(
        axes,
        "accuracy of every mixture of the clients' models",
        f"a corner is a client, in the colour of 80 % of its data (seed {panel.seed})",
    )
    bar = sheet.colorbar(mesh, cax=axes.inset_axes((1.0, 0.25, 0.025, 0.5)), format="%.0f %%")
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, colors=INK)


def _models(axes: Any, panel: Panel) -> None:
    best = panel.shares[panel.accuracy.argmax()] @ CORNERS
    samples = (panel.drawn @ CORNERS).T.numpy()
    axes.scatter(*samples, s=26, facecolor="white", edgecolor=INK, linewidth=0.9, zorder=4, label="the 10 mixtures")
    axes.scatter(*CORNERS.mean(0), s=44, color=INK, zorder=5, label="FedAvg")
    axes.scatter(*best, s=110, marker="*", color=CLASSES[1], edgecolor=INK, linewidth=0.6, zorder=6, label="best")
    axes.plot([], [], color=INK, linewidth=0.8, linestyle="--", label="as good as FedAvg")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=4, frameon=False, fontsize=8, labelcolor=INK,
                handletextpad=0.4, columnspacing=1.4)  # fmt: skip
