"""Data small enough to make in a test."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedfuse.data.examples import Examples


def labelled(total: int, classes: int, columns: dict[str, torch.Tensor] | None = None) -> Examples:
    """`total` images of one pixel whose labels go round: 0, 1, 2, ..., 0, 1, 2, ..."""
    x = torch.zeros(total, 1, 1, 1, dtype=torch.uint8)
    return Examples(x, torch.arange(total) % classes, classes, torch.zeros(1), torch.ones(1), columns or {})


def pictures(total: int, size: int = 6, seed: int = 0) -> np.ndarray:
    """(N, H, W, 3) uint8."""
    return np.random.default_rng(seed).integers(0, 256, (total, size, size, 3), dtype=np.uint8)


def write_parquet(path: Path, images: np.ndarray, label: str = "label", image: str = "img", **columns: Any) -> None:
    """A parquet file with the hub's metadata: lossless images, two classes in turn, and any other columns."""
    import datasets
    from PIL import Image

    features = {image: datasets.Image(), label: datasets.ClassLabel(names=["cat", "dog"])}
    for name, values in columns.items():
        features[name] = datasets.Value("string" if isinstance(values[0], str) else "int64")
    rows = {image: [Image.fromarray(i) for i in images], label: [n % 2 for n in range(len(images))], **columns}
    path.parent.mkdir(parents=True, exist_ok=True)
    datasets.Dataset.from_dict(rows, features=datasets.Features(features)).to_parquet(str(path))
