"""Data passed in Python: cache it under a hash of its content, so that workers and resumed runs can read it."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from fedfuse import signature
from fedfuse.data import arrays
from fedfuse.data.sources.cache import open_source, write_source
from fedfuse.data.sources.location import Location
from fedfuse.data.sources.objects import holds_tables, is_labelled, pairs_in, tables_in
from fedfuse.data.sources.own import as_source, inputs, texts_in
from fedfuse.data.sources.source import Source
from fedfuse.types import DamagedError, FedfuseError

PREFIX, TABLE = "arrays:", "table:"
HOLDOUT = 0.2
CHUNK = 4096  # rows hashed at a time


def is_arrays(value: Any) -> bool:
    """Whether `value` is a Source, an array or a pair of them: not the name of a source, or a section."""
    return isinstance(value, Source | Tensor | np.ndarray) or (isinstance(value, tuple | list) and len(value) == 2)


def is_data(value: Any) -> bool:
    """Whether `value` is data itself, or a function that returns it."""
    return is_arrays(value) or isinstance(value, Dataset) or callable(value) or holds_tables(value)


def section_of(value: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Write data to the cache, and return `settings` of [data] with its name there as `source`.

    A function that other processes can import is named instead; any other is called now, with those of the settings
    that it takes. `holdout` is the share of data without a test split that is held out.
    """
    rest = dict(settings)
    if (splits := tables_in(value)) is not None:
        return {**rest, "source": cache_table(splits)}
    if callable(value) and not isinstance(value, Dataset):
        if (name := signature.importable_name(value)) is not None:
            return {**rest, "source": name}
        names = {parameter.name for parameter in signature.settings_of(value)}
        return section_of(value(**{key: rest.pop(key) for key in names & rest.keys()}), rest)
    pairs = pairs_in(value) or value
    if is_labelled(pairs):
        return {"source": cache_arrays(as_source("data", pairs, rest.pop("holdout", HOLDOUT))), **rest}
    return {"source": cache_arrays(pairs), **rest}


def cache_table(splits: Mapping[str, Any], location: Location | None = None) -> str:
    """Write arrow tables, by split, to the cache as parquet files, and return their name there."""
    import pyarrow  # type: ignore[import-untyped, unused-ignore]
    from pyarrow import parquet

    digest = hashlib.sha256()
    for split, table in splits.items():
        content = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(content, table.schema) as stream:
            stream.write_table(table.combine_chunks())
        digest.update(f"{split} {len(table)}\n".encode() + content.getvalue().to_pybytes())
    name = f"{TABLE}{digest.hexdigest()[:32]}"
    folder = (location or Location()).cache / name.replace(":", "-")
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
            staging = Path(scratch, "new")
            staging.mkdir()
            for split, table in splits.items():
                parquet.write_table(table, staging / f"{split}.parquet")
            with suppress(FileExistsError):  # another process wrote the same
                staging.rename(folder)
    return name


def names_table(name: str) -> bool:
    return re.fullmatch(rf"{TABLE}[0-9a-f]{{32}}", name) is not None


def table_folder(location: Location, name: str) -> Path:
    """The folder of parquet files that `cache_table` wrote under this name."""
    folder = location.cache / name.replace(":", "-")
    if not folder.is_dir():
        raise FedfuseError(
            f"{name}: this table was passed in Python, and {folder} no longer holds it: pass it again, or save it to a "
            "parquet file and name that"
        )
    return folder


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
