"""Convert tables of the `datasets` library (image or text, label and other columns) to a Source."""

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
from fedfuse.data.texts.store import MOST, Texts
from fedfuse.types import FedfuseError

HOLDOUT_SEED = 2020  # fixed: a data set's test data must not change with a run's seed
LABEL = "label"  # the column of this name is the label, unless another is named
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
    text: str | tuple[str, ...] | None = None  # one column, or two for pairs of texts
    classes: tuple[tuple[int, str], ...] = ()  # names of labels by value; examples with other labels are left out


def read(name: str, splits: Splits, how: Reading, progress: Progress | None) -> Source:
    """The source in `splits`."""
    train = _train(name, splits, how)
    image = _image(name, train.features, how.image) if _has_images(train.features, how) else None
    label = _label(name, train.features, how.label)
    inputs = [image] if image is not None else _text(name, train.features, how, label)
    test = _test(name, splits, how, label)
    tables = [train] if test is None else [train, test]
    extra = _columns(name, tables, how.columns, {*inputs, label})

    def read_inputs(number: int) -> Tensor | Texts:
        split = "train" if number == 0 else "test"
        if image is None:
            return texts_of(f"{name} ({split})", tables[number].data, inputs)
        return decode(_encoded(tables[number], image), how.size, _reporter(progress, f"decoding {name} ({split})"))

    labels, ys = _labels(name, tables, label) if not how.classes else _named_labels(name, tables, label, how.classes)
    codes = {column: _codes(name, tables, column) for column in extra}
    rows: list[Rows] = [
        _labelled((read_inputs(n), ys[n], {column: code[n] for column, code in codes.items()}))
        for n in range(len(tables))
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
    train, test = (_at((x, y, columns), part) for part in parts)
    return Source.of(train, test, labels)


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


def _train(name: str, splits: Splits, how: Reading) -> Any:
    return _split(name, splits, _train_name(splits, how), "train")


def _test(name: str, splits: Splits, how: Reading, label: str) -> Any | None:
    """The test table, if there is one. GLUE's test labels are hidden: then the validation split is the test data."""
    if how.test is not None:
        return _split(name, splits, how.test, "test")
    named = [splits[s] for s in TEST_SPLITS if s in splits and s != _train_name(splits, how)]
    return next((table for table in named if not _hidden(table, label)), named[0] if named else None)


def _split(name: str, splits: Splits, wanted: str, role: str) -> Any:
    if wanted not in splits:
        raise FedfuseError(f"{name} has no split {wanted!r}, it has {', '.join(splits)}: name one with {role}=")
    return splits[wanted]


def _hidden(table: Any, label: str) -> bool:
    """Whether all labels of the table are negative, as hidden ones are."""
    from pyarrow import compute  # type: ignore[import-untyped, unused-ignore]

    if label not in table.features or _kind(table.features[label]) not in ("class", "integer"):
        return False
    largest = compute.max(table.data.column(label)).as_py()
    return largest is not None and largest < 0


def _kind(feature: Any) -> str:
    """image, class, integer, number (with a point), string or other."""
    import datasets

    if isinstance(feature, datasets.Image):
        return "image"
    if isinstance(feature, datasets.ClassLabel):
        return "class"
    dtype = str(getattr(feature, "dtype", ""))
    if dtype.startswith(("int", "uint", "bool")):
        return "integer"
    if dtype.startswith(("float", "double")):
        return "number"
    return "string" if "string" in dtype else "other"


def _describe(features: Any) -> str:
    return ", ".join(f"{name} ({_kind(feature)})" for name, feature in features.items())


def _require(name: str, features: Any, role: str, wanted: str) -> str:
    if wanted not in features:
        raise FedfuseError(f"{name} has no {role} column {wanted!r}, it has {_describe(features)}")
    return wanted


def _has_images(features: Any, how: Reading) -> bool:
    return how.text is None and (how.image is not None or "image" in map(_kind, features.values()))


def _text(name: str, features: Any, how: Reading, label: str) -> list[str]:
    """The column of texts, or the two columns of pairs."""
    if how.text is None:
        candidates = [c for c, feature in features.items() if _kind(feature) == "string" and c != label]
        if len(candidates) == 1:
            return candidates
        found = f"several columns that may be the text, {', '.join(candidates)}" if candidates else "no image or text"
        raise FedfuseError(f"{name} has {found} (it has {_describe(features)}): name the column with text= or image=")
    if how.image is not None:
        raise FedfuseError(f"{name}: image and text are both set: name the columns of one of them")
    wanted = (how.text,) if isinstance(how.text, str) else how.text
    if not 1 <= len(wanted) <= MOST:
        raise FedfuseError(f"{name}: text names {len(wanted)} columns: name one, or two for pairs of texts")
    for column in wanted:
        _require(name, features, "text", column)
        if column == label or _kind(features[column]) != "string":
            why = "is the label" if column == label else "holds no texts"
            raise FedfuseError(f"{name}: text = {column!r} {why} (it has {_describe(features)}): name another column")
    return list(wanted)


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


def _image(name: str, features: Any, wanted: str | None) -> str:
    candidates: list[str] = [column for column, feature in features.items() if _kind(feature) == "image"]
    if wanted is not None:
        candidates = [column for column in candidates if column == _require(name, features, "image", wanted)]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise FedfuseError(f"{name} has several image columns, {', '.join(candidates)}: name one with image=")
    raise FedfuseError(
        f"{name} has no image column (it has {_describe(features)}): name a column of texts with text=, or give "
        "arrays of your own with package.module:function"
    )


def _label(name: str, features: Any, wanted: str | None) -> str:
    if wanted is not None:
        return _require(name, features, "label", wanted)
    if LABEL in features and _kind(features[LABEL]) in ("class", "integer", "string", "number"):
        return LABEL
    for kind in ("class", "integer", "string"):
        candidates: list[str] = [column for column, feature in features.items() if _kind(feature) == kind]
        if kind == "string" and len(candidates) == 1 and "image" not in map(_kind, features.values()):
            break  # it is the text
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            columns = ", ".join(candidates)
            raise FedfuseError(f"{name} has several columns that may be the label, {columns}: name one with label=")
    raise FedfuseError(f"{name} has no label column (it has {_describe(features)}): name one with label=")


def _columns(name: str, tables: Sequence[Any], wanted: Sequence[str] | None, exclude: set[str]) -> list[str]:
    features = tables[0].features
    usable = [c for c, f in features.items() if _kind(f) in ("class", "integer", "string") and c not in exclude]
    if wanted is None:  # nobody asked for them: those that are not whole are left out
        return [c for c in usable if all(c in t.features and not t.data.column(c).null_count for t in tables)]
    for column in wanted:
        if column not in usable:
            raise FedfuseError(f"{name} has no column {column!r}: choose from {', '.join(usable) or 'none'}")
    return list(wanted)


def _encoded(table: Any, column: str) -> list[bytes | str]:
    """The column's image files: bytes, or the path if the bytes are only on disk."""
    cells = table.data.column(column).combine_chunks()
    contents, paths = (cells.field(part).to_pylist() for part in ("bytes", "path"))
    return [content if content is not None else path for content, path in zip(contents, paths, strict=True)]


def _values(name: str, table: Any, column: str) -> np.ndarray[Any, Any]:
    """A column's cells (N,). Numbers with a point must be whole."""
    from pyarrow import compute, types

    if column not in table.features:
        raise FedfuseError(f"{name}: the test data has no column {column!r} (it has {_describe(table.features)})")
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
