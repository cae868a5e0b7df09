"""Draw results.json: the test accuracy of every model, by data set.

    python benchmarks/fuse/picture.py [--results benchmarks/fuse/results.json] [--out benchmarks/fuse/pictures]

Bars are means over the seeds, dots are the seeds. Writes fuse.png and fuse.svg.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
INK, FAINT = "#26323a", "#dfe5e9"
COLOURS = {
    "teacher": "#b4bdc3",
    "average": "#8fb3c9",
    "ensemble": "#2a6f97",
    "fused": "#c8553d",
    "trained": "#588157",
}
VARIANT = "one architecture: "


def panel(axis: Axes, title: str, rows: Sequence[dict[str, Any]], right: float) -> None:
    """Draw a bar for each model, the first on top."""
    for place, row in enumerate(rows):
        shares = [100 * share for share in row["accuracy"]]
        colour = COLOURS[row["model"].split()[0].rstrip(",")]
        pale = row["model"].endswith("without knows")
        style = {"facecolor": "white", "hatch": "////"} if pale else {"facecolor": colour}
        axis.barh(place, mean(shares), height=0.68, edgecolor=colour, linewidth=1, **style)
        axis.scatter(shares, [place] * len(shares), s=14, color="white", edgecolor=INK, linewidth=0.9, zorder=3)
        axis.annotate(
            f"{mean(shares):.1f}", (max(shares), place), (7, 0), textcoords="offset points", va="center", color=INK
        )
    names = [f"{row['model']}\n{row['architecture']}" for row in rows]
    axis.set_yticks(range(len(rows)), names, fontsize=9, linespacing=1.15)
    axis.invert_yaxis()
    axis.set_xlim(0, right)
    axis.set_title(title, color=INK, fontsize=11, loc="left")
    axis.set_xlabel("test accuracy, %", color=INK)
    axis.grid(axis="x", color=FAINT, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(length=0, colors=INK)
    for side in axis.spines.values():
        side.set_visible(False)


def draw(results: dict[str, Any], out: Path) -> None:
    text, images = results["AG News"]["rows"], results["CIFAR-10"]["rows"]
    different = [row for row in images if not row["model"].startswith(VARIANT)]
    common = [row | {"model": row["model"].removeprefix(VARIANT)} for row in images if row not in different]
    figure = Figure(figsize=(14.4, 4.8), layout="constrained", facecolor="white")
    axes = figure.subplots(1, 3)
    panel(axes[0], "AG News: each teacher lacks a class", text, 100)
    panel(axes[1], "CIFAR-10: each has mostly 3 or 4 of 10 classes", different, 70)
    panel(axes[2], "CIFAR-10: three nets of one initialisation", common, 70)
    out.mkdir(parents=True, exist_ok=True)
    rcParams["svg.hashsalt"] = "fedfuse"  # the same file for the same numbers
    figure.savefig(out / "fuse.png", dpi=130)
    figure.savefig(out / "fuse.svg", metadata={"Date": None})


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--results", type=Path, default=HERE / "results.json")
    options.add_argument("--out", type=Path, default=HERE / "pictures")
    given = options.parse_args(arguments)
    draw(json.loads(given.results.read_text()), given.out)


if __name__ == "__main__":
    main()
