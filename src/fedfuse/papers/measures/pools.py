"""FedDF's Figure 5: the unlabeled data of the distillation. The generator's file is trained first, once per folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedfuse.data.generators import save_generator
from fedfuse.data.generators.training import Trainer
from fedfuse.data.sources import load_from
from fedfuse.data.sources.location import Location
from fedfuse.papers.comparison import compared, experiment_of
from fedfuse.papers.item import Item, ScaleName
from fedfuse.papers.result import Curves
from fedfuse.runs.display import Display

GENERATOR, PUBLIC = "data.pool.generator", "tiny-imagenet"


def measure(item: Item, scale: ScaleName, seeds: Sequence[int], folder: Path, display: Display) -> Curves:
    """Compare the pools. Groups with a generator draw from one that is trained here, on images of the same size."""
    file, values = folder / "generator.safetensors", item.scale(scale).values
    drawn = [group for group in item.groups if GENERATOR in group.settings]
    if drawn and not file.exists():
        size = experiment_of(item, drawn[0], scale).data.settings.get("size") or 32
        train(file, size, values["generator_steps"], display)
    groups = tuple(
        group.model_copy(update={"settings": {**group.settings, GENERATOR: str(file)}}) if group in drawn else group
        for group in item.groups
    )
    return compared(item.model_copy(update={"groups": groups}), scale, seeds, folder, {}, display).curves


def train(file: Path, size: int, steps: int, display: Display) -> None:
    """Train a generator on public images of another domain, and write its file."""

    def watch(stage: str, step: int, steps: int, loss: float) -> None:
        display.preparing(f"generator: {stage}", step / steps)

    images = load_from(Location.at(progress=display.preparing), PUBLIC, {"size": size}, labeled=False).train
    net = Trainer(steps=steps)(images, watch).net
    file.parent.mkdir(parents=True, exist_ok=True)
    save_generator(file, net, source=PUBLIC, seed=Trainer.seed)
