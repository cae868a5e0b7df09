"""A user's own data: arrays, or the result of the user's function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfuse.compute.batches import Batch
from fedfuse.data.sources import tables
from fedfuse.data.sources.checks import first_not_finite
from fedfuse.data.sources.files import without_dictionaries
from fedfuse.data.sources.hub import library
from fedfuse.data.sources.objects import is_labelled, pairs_in, tables_in
from fedfuse.data.sources.reading import Reading
from fedfuse.data.sources.source import Rows, Source
from fedfuse.data.texts.store import MOST, Texts
from fedfuse.types import FedfuseError


def as_source(reference: str, value: Any, holdout: float = 0.2) -> Source:
    """Your own function that returns arrays or texts, ((x_train, y_train), (x_test, y_test)), a table or a data set.

    Of a single (x, y), the share `holdout` is the test data.
    """
    if isinstance(value, Source):
        return value  # `check_source` looks at its parts
    if (splits := tables_in(value)) is not None:
        return tables.read(reference, datasets_of(splits), Reading(), None)
    value = pairs_in(value) or value
    if is_labelled(value):
        names, (y,) = _class_names(value[1])
        rows = _rows(reference, value[0], y)
        return tables.held_out(rows, names or tuple(map(str, range(_classes(reference, rows)))), holdout)
    try:
        (x, y), (x_test, y_test) = value
    except (TypeError, ValueError) as error:
        raise FedfuseError(
            f"{reference} returned {type(value).__name__}, but a Source or ((x_train, y_train), (x_test, y_test)) of "
            "arrays is needed; or (x, y), a DataFrame or a data set"
        ) from error
    names, (y, y_test) = _class_names(y, y_test)
    train, test = _rows(reference, x, y), _rows(reference, x_test, y_test)
    shapes = _shapes(train[0]), _shapes(test[0])
    if shapes[0] != shapes[1]:
        raise FedfuseError(f"{reference}: training x is {shapes[0]}, test x {shapes[1]}: give both one shape")
    labels = names or tuple(map(str, range(_classes(reference, train, test))))
    source, vocabulary = Source.of(train, test, labels), _vocabulary(train[0], test[0])
    if not vocabulary:
        return source
    first, second = (replace(examples, vocabulary=vocabulary) for examples in (source.train, source.test))
    return Source(first, second, source.labels)


def datasets_of(splits: Mapping[str, Any]) -> dict[str, Any]:
    """Arrow tables, by split, as tables of the `datasets` library."""
    return {split: library().Dataset(without_dictionaries(table), fingerprint=split) for split, table in splits.items()}


def _class_names(*ys: Any) -> tuple[tuple[str, ...], list[Any]]:
    """The sorted names of classes, if labels are strings, and the labels as numbers; no names for other labels."""
    no_dimensions = any(isinstance(y, np.ndarray) and y.ndim == 0 for y in ys)  # such an array cannot be iterated
    if no_dimensions or any(isinstance(y, Tensor) or not isinstance(y, Iterable) for y in ys):
        return (), list(ys)
    if not all(len(y) and all(isinstance(v, str) for v in y) for y in ys):
        return (), list(ys)
    arrays = [np.asarray(list(y), str) for y in ys]
    names = np.unique(np.concatenate(arrays))
    return tuple(map(str, names)), [np.searchsorted(names, array) for array in arrays]


def _classes(reference: str, *parts: Rows) -> int:
    """The number of classes in these parts. Classes are numbered from 0 without gaps."""
    classes = 1 + max(int(part[1].max()) if len(part[1]) else 0 for part in parts)
    if classes > (most := sum(len(part[1]) for part in parts)):
        raise FedfuseError(
            f"{reference}: y goes up to {classes - 1}, and there are {most} examples: number the classes from 0 "
            "without gaps"
        )
    present = torch.bincount(torch.cat([part[1] for part in parts]), minlength=classes)
    if gaps := (present == 0).nonzero().flatten().tolist():
        raise FedfuseError(
            f"{reference}: y goes up to {classes - 1}, and no example has the label {gaps[0]}: number the classes from "
            "0 without gaps"
        )
    return classes


def _vocabulary(*inputs: object) -> int:
    """The number of token ids, as far as the data shows: one more than the largest; 0 if there are none."""
    ids = [x["input_ids"] for x in inputs if isinstance(x, Mapping) and "input_ids" in x]
    return 1 + max((int(t.max()) for t in ids if t.numel()), default=-1)


def inputs(x: object, reference: str = "data") -> Tensor:
    """Inputs in the stored form: images (N, C, H, W) uint8, anything else float32."""
    values = _numbers(x, "x", reference)
    if values.dim() == 0 or values.is_complex():
        what = "a single number" if values.dim() == 0 else "complex numbers"
        raise FedfuseError(f"{reference}: x is {what}: give an array of real numbers with one row per example")
    if values.dim() == 1 or values[:1].numel() == 0 < len(values):
        raise FedfuseError(f"{reference}: x is {tuple(values.shape)}: give every example at least one number, (N, D)")
    if values.dtype == torch.uint8:
        return _images(values)
    stored = values.float()
    if (row := first_not_finite(stored)) is not None:
        why = "a value too large for float32" if first_not_finite(values[row : row + 1]) is None else "NaN or infinity"
        raise FedfuseError(f"{reference}: x holds {why} in row {row}: remove or scale such values")
    return stored


def _numbers(values: object, which: str, reference: str) -> Tensor:
    if isinstance(values, Tensor):
        return _plain(values, which, reference)
    if np.ma.isMaskedArray(values):
        raise FedfuseError(f"{reference}: {which} has masked values: fill or remove them first")
    try:
        array = np.asarray(values)
    except Exception as error:  # rows of several lengths; a user's object may raise anything
        reason = str(error).partition("\n")[0]
        raise FedfuseError(f"{reference}: {which} is no array ({reason}): give rows of one length") from error
    try:
        return torch.as_tensor(array if array.flags.writeable else array.copy())
    except TypeError as error:
        raise FedfuseError(
            f"{reference}: {which} holds {getattr(array, 'dtype', type(array).__name__)}: give numbers, and encode "
            "text and categories first"
        ) from error


def _plain(values: Tensor, which: str, reference: str) -> Tensor:
    """A tensor as data: dense, in memory, without a gradient."""
    if values.layout != torch.strided or values.is_quantized or values.device.type == "meta":
        kind = "on the meta device" if values.device.type == "meta" else "sparse or quantized"
        raise FedfuseError(f"{reference}: {which} is a tensor that is {kind}: give a dense one with values")
    return values.detach().cpu()


def texts_in(x: object, reference: str) -> Texts | None:
    """Texts, or pairs of texts, if `x` holds some; None for anything else."""
    values = x.tolist() if isinstance(x, np.ndarray) and x.dtype.kind in "UO" else x
    if not isinstance(values, list | tuple) or not values or not isinstance(_first(values[0]), str):
        return None
    rows = [(row,) if isinstance(row, str) else row for row in values]
    for number, row in enumerate(rows):
        if not 1 <= len(row) <= MOST or len(row) != len(rows[0]) or not all(isinstance(t, str) and t for t in row):
            raise FedfuseError(
                f"{reference}: x[{number}] is {values[number]!r}: give a text, or two, for every example"
            )
    return Texts.of(list(zip(*rows, strict=True)), reference)


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list | tuple) and value else value


def _shapes(x: Batch | Texts) -> str:
    """The shape of one example, in words."""
    if isinstance(x, Texts):
        return "pairs of texts" if x.pairs else "texts"
    if isinstance(x, Tensor):
        return str(tuple(x.shape[1:]))
    return ", ".join(f"{name} {tuple(tensor.shape[1:])}" for name, tensor in sorted(x.items()))


def _rows(reference: str, x: object, y: object) -> Rows:
    texts = texts_in(x, reference)
    values: Batch | Texts = texts or (_mapping(x, reference) if isinstance(x, Mapping) else inputs(x, reference))
    labels = _numbers(y, "y", reference)
    rows = {len(t) for t in (values.values() if isinstance(values, Mapping) else [values])}
    if labels.dim() != 1 or rows != {len(labels)} or labels.is_floating_point() or labels.is_complex():
        raise FedfuseError(
            f"{reference}: y is {tuple(labels.shape)} {labels.dtype} and x has {', '.join(map(str, sorted(rows)))} "
            f"examples of {_shapes(values)}, but y must be one integer per example"
        )
    if len(labels) and int(labels.min()) < 0:
        raise FedfuseError(f"{reference}: y has the label {int(labels.min())}: number the classes from 0")
    return values, labels.long(), {}


def _mapping(x: Mapping[str, object], reference: str) -> dict[str, Tensor]:
    """Several inputs by name, such as token ids and their mask: integers as int64, floats as float32."""
    tensors = {str(name): _numbers(value, str(name), reference) for name, value in x.items()}
    for name, tensor in tensors.items():
        if tensor.dim() == 0 or tensor.is_complex():
            what = "a single number" if tensor.dim() == 0 else "complex numbers"
            raise FedfuseError(f"{reference}: {name} is {what}: give an array of real numbers, one row per example")
    if (ids := tensors.get("input_ids")) is not None and ids.is_floating_point():
        raise FedfuseError(f"{reference}: input_ids holds {ids.dtype}: give token ids, which are whole numbers")
    if not tensors:
        raise FedfuseError(f"{reference}: x is an empty mapping: give at least one array")
    return {name: t.float() if t.is_floating_point() else t.long() for name, t in tensors.items()}


def _images(x: Tensor) -> Tensor:
    """(N, H, W), (N, H, W, C) or (N, C, H, W) -> (N, C, H, W)."""
    if x.dim() == 3:
        return x[:, None]
    if x.dim() == 4 and x.shape[1] not in (1, 3) and x.shape[3] in (1, 3):
        return x.permute(0, 3, 1, 2).contiguous()
    return x if x.dim() == 4 else x.float()
