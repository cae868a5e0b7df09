"""The idx format of MNIST and Fashion-MNIST, plain or gzipped."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedfuse.types import FedfuseError

FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def files(folder: Path) -> list[Path]:
    """The four files in `folder`, images before labels and training before test; empty if any is missing."""
    names = [name for pair in FILES.values() for name in pair]
    paths = [p for name in names for p in (folder / name, folder / f"{name}.gz") if p.is_file()]
    return paths if len(paths) == len(names) else []


def read(path: Path) -> Tensor:
    """The uint8 array in an idx file: two zero bytes, type 8, the number of dimensions, sizes, then the data."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if raw[:3] != b"\0\0\x08":
        raise FedfuseError(f"{path} is not an idx file of bytes: download it again")
    shape = np.frombuffer(raw, ">u4", count=raw[3], offset=4).astype(int)
    data = np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3])
    if data.size != shape.prod():
        raise FedfuseError(f"{path} holds {data.size} values, but its header says {shape.prod()}: download it again")
    return torch.from_numpy(data.reshape(shape).copy())


def splits(folder: Path) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """((x, y), (x, y)) of the training and test files in `folder`: x (N, 1, H, W) uint8, y (N,) int64."""
    x, y, x_test, y_test = map(read, files(folder))
    return (x[:, None], y.long()), (x_test[:, None], y_test.long())
