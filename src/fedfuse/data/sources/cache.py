"""The cache: decode a source once, and memory-map it from then on."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fedfuse.data import arrays
from fedfuse.data.sources.location import Location
from fedfuse.data.sources.source import Source
from fedfuse.types import DamagedError


def cached(location: Location, name: str, key: Mapping[str, Any], build: Callable[[], Source]) -> Source:
    """The source in the cache under `key`. If it is missing or damaged, `build()` makes it."""
    digest = hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()[:16]
    folder = location.cache / f"{name}-{digest}"
    if folder.exists():
        try:
            return open_source(folder)
        except DamagedError:
            arrays.remove(folder)
    source = build()
    try:
        write_source(folder, source)
    except OSError as error:
        warnings.warn(
            f"{name} is not cached: {folder} cannot be written ({error}): set FEDFUSE_CACHE to another folder",
            stacklevel=2,
        )
        return source
    return open_source(folder)


def cached_arrays(
    location: Location,
    name: str,
    build: Callable[[], tuple[Mapping[str, Tensor], Mapping[str, Any]]],
    needs: Collection[str],
) -> tuple[Mapping[str, Tensor], Mapping[str, Any]]:
    """The arrays and facts in the cache under `name`. If one of `needs` is missing or damaged, `build()` makes them."""
    folder = location.cache / name
    if folder.exists():
        try:
            tensors, facts = arrays.read(folder)
            if all(need in tensors or need in facts for need in needs):
                return tensors, facts
        except DamagedError:
            pass
        arrays.remove(folder)
    tensors, facts = build()  # type: ignore[assignment]
    try:
        arrays.write(folder, tensors, facts, replace=False)
    except OSError as error:
        warnings.warn(
            f"{name} is not cached: {folder} cannot be written ({error}): set FEDFUSE_CACHE to another folder",
            stacklevel=2,
        )
    return tensors, facts


def stamp(root: Path, files: Iterable[Path]) -> list[tuple[str, int, int]]:
    """The name, size and modification time of each file, which a cache entry depends on."""
    stats = ((file, file.stat()) for file in sorted(files))
    return [(str(file.relative_to(root)), stat.st_size, stat.st_mtime_ns) for file, stat in stats]


def write_source(folder: Path, source: Source) -> None:
    arrays.write(
        folder,
        arrays.pack("train", source.train) | arrays.pack("test", source.test),
        {"labels": list(source.labels), "name": folder.name},
        replace=False,
    )


def open_source(folder: Path) -> Source:
    tensors, facts = arrays.read(folder)
    if facts.get("name", folder.name) != folder.name:
        raise DamagedError(f"{folder} holds a copy of {facts['name']}: delete it")
    try:
        labels = tuple(facts["labels"])
        train, test = (arrays.unpack(part, tensors, len(labels)) for part in ("train", "test"))
    except KeyError as error:
        raise DamagedError(f"{folder} has no {error}") from error
    return Source(train, test, labels)
