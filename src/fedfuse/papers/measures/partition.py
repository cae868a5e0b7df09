"""Partitions as figures (FedDF 2, 9, 10, 11; Fed-ET 2): clients' data by class, as dots, and how unlike they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from fedfuse.data.partition import label_entropy
from fedfuse.data.picture import NAMED, draw
from fedfuse.papers.comparison import experiment_of
from fedfuse.papers.item import Item, ScaleName
from fedfuse.papers.result import Curves
from fedfuse.papers.study import PICTURE
from fedfuse.runs.display import Display
from fedfuse.runs.setup import load_federation


def measure(item: Item, scale: ScaleName, seeds: Sequence[int], folder: Path, display: Display) -> Curves:
    """Partition the data of each group for each seed, and draw the first seed's.

    If some groups have few enough classes to name them in the picture, only these are drawn.
    """
    curves: dict[str, dict[str, list[list[float]]]] = {}
    panels: dict[str, tuple[Tensor, tuple[str, ...]]] = {}
    for number, group in enumerate(item.groups):
        display.preparing(group.name, number / len(item.groups))
        experiment = experiment_of(item, group, scale)
        federations = [load_federation(experiment.with_settings({"run.seed": seed})) for seed in seeds]
        panels[group.name] = federations[0].counts, federations[0].labels
        each = [numbers(federation.counts) for federation in federations]
        curves[group.name] = {row.name: [[one[row.name]] for one in each] for row in item.rows_of(group.name)}
    named = {name: panel for name, panel in panels.items() if len(panel[1]) <= NAMED}
    draw(named or panels, folder / PICTURE)
    return curves


def numbers(counts: Tensor) -> dict[str, float]:
    """Return the mean label entropy of a client in nats, and the deviation of sizes over their mean. counts: (K, C)."""
    sizes = counts.sum(1).double()
    return {
        "label entropy": round(float(label_entropy(counts).mean()), 6),
        "spread of sizes": round(float(sizes.std(correction=0) / sizes.mean()), 6),
    }
