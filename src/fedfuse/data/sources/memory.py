"""Data passed in Python: cache it under a hash of its content, so that workers and resumed runs can read it."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfuse.data import arrays
from fedfuse.data.sources.cache import open_source, write_source
from fedfuse.data.sources.location import Location
from fedfuse.data.sources.own import as_source, inputs, texts_in
from fedfuse.data.sources.source import Source
from fedfuse.types import DamagedError, FedfuseError

PREFIX = "arrays:"
CHUNK = 4096  # rows hashed at a time


def is_data(value: Any) -> bool:
    """Whether `value` is data itself, not the name of a source or a section."""
    return isinstance(value, Source | Tensor | np.ndarray) or (isinstance(value, tuple | list) and len(value) == 2)


def cache_arrays(value: Any, location: Location | None = None) -> str:
    """Write data to the cache and return its name there.

    value: a Source, ((x_train, y_train), (x_test, y_test)) of arrays, or, for a pool, unlabeled inputs x.
    """
    source = _unlabeled(value) if isinstance(value, Tensor | np.ndarray) else as_source("data", value)
    tensors = {**arrays.pack("train", source.train), **arrays.pack("test", source.test)}
    digest = hashlib.sha256("\n".join(source.labels).encode())
    for name, tensor in tensors.items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        for chunk in torch.split(tensor, CHUNK):
            digest.update(chunk.contiguous().numpy().tobytes())
    name = f"{PREFIX}{digest.hexdigest()[:32]}"
    folder = (location or Location()).cache / name.replace(":", "-")
    if not folder.exists():
        write_source(folder, source)
    return name


def _unlabeled(x: Any) -> Source:
    """A source of inputs without labels."""
    texts, labels = texts_in(x, "data"), torch.zeros(len(x), dtype=torch.int64)
    if texts is not None:
        return Source.of((texts, labels, {}), (texts.select(torch.arange(0)), labels[:0], {}), ("unlabeled",))
    values = inputs(x)
    return Source.of((values, labels, {}), (values[:0], labels[:0], {}), ("unlabeled",))


def names_arrays(name: str) -> bool:
    return re.fullmatch(rf"{PREFIX}[0-9a-f]{{32}}", name) is not None


def read_arrays(location: Location, name: str) -> Source:
    """The data that `cache_arrays` stored under this name."""
    folder = location.cache / name.replace(":", "-")
    try:
        return open_source(folder)
    except DamagedError as error:
        raise FedfuseError(
            f"{name}: these arrays were passed in Python, and {folder} no longer holds them: pass them again, or save "
            "them to a file and write a function that loads it"
        ) from error
