"""Convert tables of the `datasets` library (images, texts or features, label and other columns) to a Source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfuse import rng
from fedfuse.compute.batches import select_rows
from fedfuse.data.holdout import amount, stratified
from fedfuse.data.sources.columns import Chosen, choose, describe, kind_of, other_columns
from fedfuse.data.sources.decode import decode
from fedfuse.data.sources.features import encode
from fedfuse.data.sources.location import Progress
from fedfuse.data.sources.reading import Reading
from fedfuse.data.sources.source import Rows, Source
from fedfuse.data.texts.store import Texts
from fedfuse.types import FedfuseError

HOLDOUT_SEED = 2020  # fixed: a data set's test data must not change with a run's seed
SPLITS = ("train", "test")
TEST_SPLITS = ("test", "validation", "valid", "val")

Splits = Mapping[str, Any]  # split name -> datasets.Dataset


def read(name: str, splits: Splits, how: Reading, progress: Progress | None) -> Source:
    """The source in `splits`."""
    train = training_table(name, splits, how)
    chosen = choose(name, train, how)
    test = _test(name, splits, how, chosen.label)
    tables = [train] if test is None else [train, test]
    extra = other_columns(name, tables, how, chosen)
    one_hot: Tensor | None = None
    xs: Sequence[Tensor | Texts]
    if chosen.kind == "features":
        xs, one_hot = encode(name, tables, chosen.inputs, named=how.features is not None)
    else:
        xs = [_inputs(f"{name} ({split})", t, chosen, how, progress) for split, t in zip(SPLITS, tables, strict=False)]
    label = chosen.label
    labels, ys = _labels(name, tables, label) if not how.classes else _named_labels(name, tables, label, how.classes)
    codes = {column: _codes(name, tables, column) for column in extra}
    rows: list[Rows] = [
        _labelled((xs[n], ys[n], {column: code[n] for column, code in codes.items()})) for n in range(len(tables))
    ]
    if test is not None:
        return Source.of(rows[0], rows[1], labels, one_hot)
    return held_out(rows[0], labels, how.holdout, one_hot)


def _inputs(name: str, table: Any, chosen: Chosen, how: Reading, progress: Progress | None) -> Tensor | Texts:
    if chosen.kind == "texts":
        return texts_of(name, table.data, chosen.inputs)
    return decode(encoded_images(table, chosen.inputs[0]), how.size, _reporter(progress, f"decoding {name}"))


def held_out(rows: Rows, labels: tuple[str, ...], size: float, one_hot: Tensor | None = None) -> Source:
    """A source for data without a test split: a seeded, stratified `size` of `rows` becomes the test data."""
    x, y, columns = rows
    number = amount(size, len(y), "data.holdout")
    if number < len(labels):
        raise FedfuseError(
            f"data.holdout = {size:g}: {number} test examples for {len(labels)} classes: give a share below 1, or a "
            "number with at least one of each class"
        )
    parts = stratified(y, number, rng.generator(HOLDOUT_SEED, "holdout"))
    train, test = (_at((x, y, columns), part) for part in parts)
    return Source.of(train, test, labels, one_hot)


def _at(rows: Rows, index: Tensor) -> Rows:
    x, y, columns = rows
    inputs = x.select(index) if isinstance(x, Texts) else select_rows(x, index)
    return inputs, y[index], {name: c[index] for name, c in columns.items()}


def _labelled(rows: Rows) -> Rows:
    """Leave out the examples whose label is none of the classes, marked by -1."""
    known = rows[1] >= 0
    return rows if bool(known.all()) else _at(rows, known.nonzero().squeeze(1))


def _reporter(progress: Progress | None, what: str) -> Callable[[float], None]:
    return (lambda fraction: progress(what, fraction)) if progress else (lambda fraction: None)


def _train_name(splits: Splits, how: Reading) -> str:
    # A single split is the training data, whatever its name.
    return how.train if len(splits) > 1 or how.train in splits else next(iter(splits))


def training_table(name: str, splits: Splits, how: Reading) -> Any:
    return _split(name, splits, _train_name(splits, how), "train")


def _test(name: str, splits: Splits, how: Reading, label: str) -> Any | None:
    """The test table, if there is one. GLUE's test labels are hidden: then the validation split is the test data."""
    if how.test is not None:
        return _split(name, splits, how.test, "test")
    named = [splits[s] for s in TEST_SPLITS if s in splits and s != _train_name(splits, how)]
    return next((table for table in named if not _hidden(table, label)), named[0] if named else None)


def _split(name: str, splits: Splits, wanted: str, role: str) -> Any:
    if wanted not in splits:
        raise FedfuseError(f"{name} has no split {wanted!r}, it has {', '.join(splits)}: name one with data.{role}")
    return splits[wanted]


def _hidden(table: Any, label: str) -> bool:
    """Whether all labels of the table are negative, as hidden ones are."""
    from pyarrow import compute  # type: ignore[import-untyped, unused-ignore]

    if label not in table.features or kind_of(table.features[label]) not in ("class", "integer"):
        return False
    largest = compute.max(table.data.column(label)).as_py()
    return largest is not None and largest < 0


def texts_of(name: str, table: Any, columns: Sequence[str]) -> Texts:
    """The texts in these columns of an arrow table."""
    return Texts.of([strings_of(name, table.column(column), column) for column in columns], name)


def strings_of(name: str, cells: Any, column: str) -> list[str]:
    """The texts of an arrow column. A cell without a text is an error that names the row."""
    values: list[str | None] = cells.to_pylist()
    texts = [text for text in values if text is not None and not (text == "" or text.isspace())]
    if len(texts) == len(values):
        return texts
    row, text = next((row, text) for row, text in enumerate(values, 1) if text is None or not text.strip())
    what = "is missing" if text is None else "is empty"
    raise FedfuseError(f"{name}: {column} {what} in row {row} (counted from 1): remove such rows, or fill them in")


def encoded_images(table: Any, column: str) -> list[bytes | str]:
    """The column's image files: bytes, or the path if the bytes are only on disk."""
    cells = table.data.column(column).combine_chunks()
    contents, paths = (cells.field(part).to_pylist() for part in ("bytes", "path"))
    return [content if content is not None else path for content, path in zip(contents, paths, strict=True)]


def _values(name: str, table: Any, column: str) -> np.ndarray[Any, Any]:
    """A column's cells (N,). Numbers with a point must be whole."""
    from pyarrow import compute, types

    if column not in table.features:
        raise FedfuseError(f"{name}: the test data has no column {column!r} (it has {describe(table.features)})")
    cells = table.data.column(column)
    empty = compute.is_null(cells, nan_is_null=True)
    if (row := compute.index(empty, True).as_py()) >= 0:
        raise FedfuseError(f"{name}: {column!r} is empty in row {row + 1} (counted from 1): remove such rows, or name "
                           "another column")  # fmt: skip
    values: np.ndarray[Any, Any] = np.asarray(cells.to_pylist())
    if types.is_floating(cells.type):
        if (fractions := values[values != np.floor(values)]).size:
            raise FedfuseError(
                f"{name}: {column!r} holds {fractions[0]:g}, which is no class: give names or whole numbers"
            )
        return values.astype(np.int64)
    return values


def _labels(name: str, tables: Sequence[Any], column: str) -> tuple[tuple[str, ...], list[Tensor]]:
    """The class names and each table's labels (N,): as numbered by the class column, else by sorted value."""
    feature = tables[0].features[column]
    values = [_values(name, table, column) for table in tables]
    if kind_of(feature) == "class":
        names = tuple(feature.names)
        if any((v < 0).any() or (v >= len(names)).any() for v in values):
            raise FedfuseError(
                f"{name} has labels outside 0..{len(names) - 1} in {column!r}: name another split with data.test"
            )
        return names, [torch.from_numpy(v.astype(np.int64)) for v in values]
    known = np.unique(values[0])
    for v in values[1:]:
        unknown = np.setdiff1d(v, known)
        if unknown.size:
            raise FedfuseError(
                f"{name}: the test data has the label {unknown[0]!r}, but the training data does not: name another "
                "split with data.test"
            )
    return tuple(str(v) for v in known), [torch.from_numpy(np.searchsorted(known, v)) for v in values]


def _named_labels(
    name: str, tables: Sequence[Any], column: str, classes: Sequence[tuple[int, str]]
) -> tuple[tuple[str, ...], list[Tensor]]:
    """Labels (N,) by the names of their values; -1 for other values."""
    labels = tuple(dict.fromkeys(label for _, label in classes))
    ys = []
    for table in tables:
        values = _values(name, table, column)
        y = np.full(len(values), -1, np.int64)
        for value, label in classes:
            y[values == value] = labels.index(label)
        ys.append(torch.from_numpy(y))
    return labels, ys


def _codes(name: str, tables: Sequence[Any], column: str) -> list[Tensor]:
    """The column (N,) of each table as int64: integers unchanged, strings numbered by sorted value over all tables."""
    values = [_values(name, table, column) for table in tables]
    if values[0].dtype.kind in "iub":
        return [torch.from_numpy(v.astype(np.int64)) for v in values]
    known = np.unique(np.concatenate(values))
    return [torch.from_numpy(np.searchsorted(known, v).astype(np.int64)) for v in values]
