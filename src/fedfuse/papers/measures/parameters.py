"""Fed-ET's Table 6: the parameters of the nets, each with the shared head."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedfuse.models.catalogue import build
from fedfuse.papers.item import Item, ScaleName
from fedfuse.papers.result import Curves
from fedfuse.runs.display import Display

HEAD = 128
# classes and shape of the inputs of each group
INPUTS: dict[str, tuple[int, tuple[int, ...]]] = {"images": (10, (3, 32, 32)), "texts": (2, (256, 30_522))}


def measure(item: Item, scale: ScaleName, seeds: Sequence[int], folder: Path, display: Display) -> Curves:
    """Count the parameters of each row's net, in millions. They are the same for all seeds."""
    return {
        group.name: {
            row.name: [[millions(row.name, *INPUTS[group.name])]] * len(seeds) for row in item.rows_of(group.name)
        }
        for group in item.groups
    }


def millions(arch: str, classes: int, shape: tuple[int, ...]) -> float:
    """Return the trainable parameters of a net with the shared head, in millions."""
    net = build(f"{arch}+head{HEAD}", classes=classes, shape=shape)
    return round(sum(p.numel() for p in net.parameters() if p.requires_grad) / 1e6, 6)
