"""Decoded once, mapped ever after: sources kept as arrays under the cache folder."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fedfuse.data import arrays
from fedfuse.data.sources.location import Shelf
from fedfuse.data.sources.source import Source


def remembered(shelf: Shelf, name: str, key: Mapping[str, Any], build: Callable[[], Source]) -> Source:
    """The source kept for `key`, or `build()`'s, kept from now on. An entry that is damaged is built again."""
    digest = hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()[:16]
    folder = shelf.cache / f"{name}-{digest}"
    if folder.exists():
        try:
            return _open(folder)
        except arrays.DamagedError:
            arrays.remove(folder)
    source = build()
    try:
        _write(folder, source)
    except OSError as error:
        warnings.warn(f"{name} is not kept for the next time: {folder} cannot be written ({error})", stacklevel=2)
        return source
    return _open(folder)


def stamp(root: Path, files: Iterable[Path]) -> list[tuple[str, int, int]]:
    """What changes when the files do: each one's name, size and time of change."""
    facts = ((file, file.stat()) for file in sorted(files))
    return [(str(file.relative_to(root)), stat.st_size, stat.st_mtime_ns) for file, stat in facts]


def _write(folder: Path, source: Source) -> None:
    arrays.write(
        folder,
        arrays.pack("train", source.train) | arrays.pack("test", source.test),
        {"labels": list(source.labels)},
    )


def _open(folder: Path) -> Source:
    stored, facts = arrays.read(folder)
    try:
        labels = tuple(facts["labels"])
        train, test = (arrays.unpack(part, stored, len(labels)) for part in ("train", "test"))
    except KeyError as error:
        raise arrays.DamagedError(f"{folder} has no {error}") from error
    return Source(train, test, labels)
