"""Convert tables of the `datasets` library (image, label and other columns) to a Source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfuse import rng
from fedfuse.batches import select_rows
from fedfuse.data.holdout import amount, stratified
from fedfuse.data.sources.decode import decode
from fedfuse.data.sources.location import Progress
from fedfuse.data.sources.source import Rows, Source
from fedfuse.types import FedfuseError

HOLDOUT_SEED = 2020  # fixed: a data set's test data must not change with a run's seed
TEST_SPLITS = ("test", "validation", "valid", "val")

Splits = Mapping[str, Any]  # split name -> datasets.Dataset


@dataclass(frozen=True)
class Reading:
    """How to read a table. Columns that are None are chosen by type if only one fits."""

    image: str | None = None
    label: str | None = None
    config: str | None = None
    size: int | None = None
    columns: tuple[str, ...] | None = None  # None: every other integer, string or class column
    train: str = "train"
    test: str | None = None
    holdout: float = 0.2  # of the training split, for data without a test split
    revision: str | None = None


def read(name: str, splits: Splits, how: Reading, progress: Progress | None) -> Source:
    """The source in `splits`."""
    train, test = _choose(name, splits, how)
    image = _image(name, train.features, how.image)
    label = _label(name, train.features, how.label)
    extra = _columns(name, train.features, how.columns, {image, label})
    tables = [train] if test is None else [train, test]

    def images(number: int) -> Tensor:
        what = f"decoding {name} ({'train' if number == 0 else 'test'})"
        return decode(_encoded(tables[number], image), how.size, _reporter(progress, what))

    labels, ys = _labels(name, tables, label)
    codes = {column: _codes(tables, column) for column in extra}
    rows: list[Rows] = [
        (images(n), ys[n], {column: code[n] for column, code in codes.items()}) for n in range(len(tables))
    ]
    return Source.of(rows[0], rows[1], labels) if test is not None else held_out(rows[0], labels, how.holdout)


def held_out(rows: Rows, labels: tuple[str, ...], size: float) -> Source:
    """A source for data without a test split: a seeded, stratified `size` of `rows` becomes the test data."""
    x, y, columns = rows
    number = amount(size, len(y), "holdout")
    if number < len(labels):
        raise FedfuseError(
            f"holdout = {size:g}: {number} test examples for {len(labels)} classes: give a share below 1, or a number "
            "with at least one of each class"
        )
    parts = stratified(y, number, rng.generator(HOLDOUT_SEED, "holdout"))
    train, test = ((select_rows(x, part), y[part], {name: c[part] for name, c in columns.items()}) for part in parts)
    return Source.of(train, test, labels)


def _reporter(progress: Progress | None, what: str) -> Callable[[float], None]:
    return (lambda fraction: progress(what, fraction)) if progress else (lambda fraction: None)


def _choose(name: str, splits: Splits, how: Reading) -> tuple[Any, Any | None]:
    # A single split is the training data, whatever its name.
    train = how.train if len(splits) > 1 or how.train in splits else next(iter(splits))
    test = how.test or next((s for s in TEST_SPLITS if s in splits and s != train), None)
    for role, wanted in (("train", train), ("test", test)):
        if wanted is not None and wanted not in splits:
            raise FedfuseError(f"{name} has no split {wanted!r}, it has {', '.join(splits)}: name one with {role}=")
    return splits[train], None if test is None else splits[test]


def _kind(feature: Any) -> str:
    """image, class, integer, string or other."""
    import datasets

    if isinstance(feature, datasets.Image):
        return "image"
    if isinstance(feature, datasets.ClassLabel):
        return "class"
    dtype = str(getattr(feature, "dtype", ""))
    if dtype.startswith(("int", "uint", "bool")):
        return "integer"
    return "string" if "string" in dtype else "other"


def _describe(features: Any) -> str:
    return ", ".join(f"{name} ({_kind(feature)})" for name, feature in features.items())


def _require(name: str, features: Any, role: str, wanted: str) -> str:
    if wanted not in features:
        raise FedfuseError(f"{name} has no {role} column {wanted!r}, it has {_describe(features)}")
    return wanted


def _image(name: str, features: Any, wanted: str | None) -> str:
    candidates: list[str] = [column for column, feature in features.items() if _kind(feature) == "image"]
    if wanted is not None:
        candidates = [column for column in candidates if column == _require(name, features, "image", wanted)]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise FedfuseError(f"{name} has several image columns, {', '.join(candidates)}: name one with image=")
    raise FedfuseError(
        f"{name} has no image column (it has {_describe(features)}): fedfuse reads images, text is not supported yet. "
        "Give arrays of your own with package.module:function"
    )


def _label(name: str, features: Any, wanted: str | None) -> str:
    if wanted is not None:
        return _require(name, features, "label", wanted)
    for kind in ("class", "integer", "string"):
        candidates: list[str] = [column for column, feature in features.items() if _kind(feature) == kind]
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            columns = ", ".join(candidates)
            raise FedfuseError(f"{name} has several columns that may be the label, {columns}: name one with label=")
    raise FedfuseError(f"{name} has no label column (it has {_describe(features)}): name one with label=")


def _columns(name: str, features: Any, wanted: Sequence[str] | None, exclude: set[str]) -> list[str]:
    usable = [c for c, f in features.items() if _kind(f) in ("class", "integer", "string") and c not in exclude]
    if wanted is None:
        return usable
    for column in wanted:
        if column not in usable:
            raise FedfuseError(f"{name} has no column {column!r}: choose from {', '.join(usable) or 'none'}")
    return list(wanted)


def _encoded(table: Any, column: str) -> list[bytes | str]:
    """The column's image files: bytes, or the path if the bytes are only on disk."""
    cells = table.data.column(column).combine_chunks()
    contents, paths = (cells.field(part).to_pylist() for part in ("bytes", "path"))
    return [content if content is not None else path for content, path in zip(contents, paths, strict=True)]


def _values(table: Any, column: str) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = np.asarray(table.data.column(column).to_pylist())
    if values.dtype == object:
        raise FedfuseError(f"column {column!r} has empty cells: remove those rows, or name other columns")
    return values


def _labels(name: str, tables: Sequence[Any], column: str) -> tuple[tuple[str, ...], list[Tensor]]:
    """The class names and each table's labels (N,): as numbered by the class column, else by sorted value."""
    feature = tables[0].features[column]
    values = [_values(table, column) for table in tables]
    if _kind(feature) == "class":
        names = tuple(feature.names)
        if any((v < 0).any() or (v >= len(names)).any() for v in values):
            raise FedfuseError(
                f"{name} has labels outside 0..{len(names) - 1} in {column!r}: name another split with test="
            )
        return names, [torch.from_numpy(v.astype(np.int64)) for v in values]
    known = np.unique(values[0])
    for v in values[1:]:
        unknown = np.setdiff1d(v, known)
        if unknown.size:
            raise FedfuseError(
                f"{name}: the test data has the label {unknown[0]!r}, but the training data does not: name another "
                "split with test="
            )
    return tuple(str(v) for v in known), [torch.from_numpy(np.searchsorted(known, v)) for v in values]


def _codes(tables: Sequence[Any], column: str) -> list[Tensor]:
    """The column (N,) of each table as int64: integers unchanged, strings numbered by sorted value over all tables."""
    values = [_values(table, column) for table in tables]
    if values[0].dtype.kind in "iub":
        return [torch.from_numpy(v.astype(np.int64)) for v in values]
    known = np.unique(np.concatenate(values))
    return [torch.from_numpy(np.searchsorted(known, v).astype(np.int64)) for v in values]
