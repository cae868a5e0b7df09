"""Pools of any kind as tensors: arrays, mappings, datasets and loaders. Past a bound they are kept in a mapped file."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from fedfuse import tree
from fedfuse.compute.batches import MASK, Batch, length
from fedfuse.fusion.spill import BOUND, SpillingRows
from fedfuse.fusion.table import TensorPool
from fedfuse.in_hand.frames import Columns, columns_of, numbered, numbers_of
from fedfuse.types import FedfuseError

LABELS = ("label", "labels", "y", "target", "targets")  # keys that are not inputs
ENCODED = ("input_ids", "pixel_values")
CHUNK = 256  # examples of a dataset that are stacked at once
ONE_SHAPE = "pad or resize them to one, or give texts an attention_mask"
LABELED = "give (x, y), a dataset or loader of them, or a mapping with 'labels'"
IDS = "input_ids"
REMEDY = "give tensors, arrays, a mapping of them, a dataset, or batches"


def as_pool(
    pool: Any,
    what: str = "the pool",
    bound: int = BOUND,
    dtype: torch.dtype | None = None,
    padding: int = 0,
    columns: Columns | None = None,
) -> TensorPool:
    """Return the inputs of a pool. Labels are dropped; inputs must be finite numbers of one shape.

    dtype: of floats, by default as they are. padding: the token with which shorter sequences are filled up.
    columns: of a data frame, by default all.
    """
    if columns_of(pool) is not None:
        inputs: Batch = numbers_of(pool, what, columns, dtype)
    else:
        inputs = _in(dtype, _whole(pool, what)) if _is_batch(pool) else _read(pool, what, bound, dtype, padding)
    for name, tensor in ({"": inputs} if isinstance(inputs, Tensor) else inputs).items():
        _check(tensor, f"{what}'s {name}" if name else what)
    if not isinstance(inputs, Tensor) and len(inputs) == 1:  # nets that know no names take it too
        inputs = next(iter(inputs.values()))
    return TensorPool(inputs)


def _in(dtype: torch.dtype | None, batch: Batch) -> Batch:
    """Return floats in this dtype: numpy's are double, the parameters of nets are not."""
    if isinstance(batch, Tensor):
        return batch if dtype is None or not batch.is_floating_point() else batch.to(dtype)
    return {
        name: tensor if dtype is None or not tensor.is_floating_point() else tensor.to(dtype)
        for name, tensor in batch.items()
    }


def _is_batch(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray) or (
        isinstance(value, Mapping) and all(isinstance(v, Tensor | np.ndarray | list) for v in value.values())
    )


def _whole(value: Any, what: str) -> Batch:
    """Return arrays and mappings of arrays as tensors, without labels."""
    if not isinstance(value, Mapping):
        return _tensor(value, what).detach()
    tensors = _inputs(value, what)
    if len({len(t) for t in tensors.values()}) > 1:
        sizes = ", ".join(f"{name} {len(t)}" for name, t in tensors.items())
        raise FedfuseError(f"{what}'s tensors have different lengths ({sizes}): give one row per example")
    return tensors


def _inputs(value: Mapping[str, Any], what: str) -> dict[str, Tensor]:
    inputs = {name: v for name, v in value.items() if name not in LABELS}
    if any(name in inputs for name in ENCODED):  # the text that the ids were made of may still be there
        inputs = {name: v for name, v in inputs.items() if not _is_text(v)}
    tensors = {name: _tensor(v, f"{what}'s {name}").detach() for name, v in inputs.items()}
    if not tensors:
        raise FedfuseError(f"{what} has only {', '.join(value) or 'nothing'}: add the inputs")
    return tensors


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and bool(value) and isinstance(value[0], str))


def _tensor(value: Any, what: str) -> Tensor:
    try:
        with warnings.catch_warnings():  # nothing here writes to it
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        kind = getattr(value, "dtype", type(value).__name__)
        raise FedfuseError(
            f"{what} holds {kind}, which is no tensor ({str(error).splitlines()[0]}): encode text with a tokenizer, "
            "images with a processor, and pad rows to one length"
        ) from error


def _check(x: Tensor, what: str) -> None:
    if x.dim() == 0 or len(x) == 0:
        raise FedfuseError(f"{what} is empty: give unlabeled inputs to distil on")
    if x.dtype == torch.uint8:
        raise FedfuseError(f"{what} holds bytes: give it as the models take it, as normalised floats")
    if x.is_floating_point() and not tree.all_finite(x):
        raise FedfuseError(f"{what} holds values that are not finite: remove them first")


def _read(pool: Any, what: str, bound: int, dtype: torch.dtype | None, padding: int) -> Batch:
    """Read a dataset or batches once, in order."""
    columns: dict[str, _Rows] = {}
    single = True
    for batch in _batches(pool, what, padding):
        single = isinstance(batch, Tensor)
        sequences = not isinstance(batch, Tensor) and MASK in batch
        for name, tensor in ({"": batch} if isinstance(batch, Tensor) else batch).items():
            cast = tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor
            columns.setdefault(name, _Rows(cast.dtype, bound, padding if name == IDS else 0, what, sequences)).append(
                cast
            )
    if not columns:
        raise FedfuseError(f"{what} is empty: give unlabeled inputs to distil on")
    return columns[""].whole() if single else {name: rows.whole() for name, rows in columns.items()}


class _Rows:
    """Rows that are read in order. Sequences (n, L) with an attention mask may be of any length L."""

    def __init__(self, dtype: torch.dtype, bound: int, padding: int, what: str, sequences: bool) -> None:
        self._dtype, self._bound, self._padding, self._what, self._sequences = dtype, bound, padding, what, sequences
        self._rows, self._shape = SpillingRows(dtype, bound), tuple[int, ...]()

    def append(self, rows: Tensor) -> None:
        shape = tuple(rows.shape[1:])
        if len(self._rows) and shape != self._shape:
            if not self._sequences or len(shape) != 1 or len(self._shape) != 1:
                raise FedfuseError(f"{self._what}'s batches differ in shape ({self._shape}, {shape}): {ONE_SHAPE}")
            if shape[0] > self._shape[0]:
                self._widen(max(shape[0], self._shape[0] * 3 // 2))  # padding that no batch needs is cut off later
            rows = F.pad(rows, (0, self._shape[0] - shape[0]), value=self._padding)
        self._shape = tuple(rows.shape[1:])
        self._rows.append(rows)

    def _widen(self, width: int) -> None:
        wide = SpillingRows(self._dtype, self._bound)
        for part in torch.split(self._rows.whole(), CHUNK):
            wide.append(F.pad(part, (0, width - self._shape[0]), value=self._padding))
        self._rows, self._shape = wide, (width,)

    def whole(self) -> Tensor:
        return self._rows.whole()


def _batches(pool: Any, what: str, padding: int) -> Iterator[Batch]:
    if isinstance(pool, Mapping):
        raise FedfuseError(f"{what} has the parts {', '.join(map(str, pool))}: choose one of them")
    if isinstance(pool, str) or not (isinstance(pool, Iterable) or _is_indexed(pool)):
        raise FedfuseError(f"{what} is a {type(pool).__name__}: {REMEDY}")
    examples = (pool[i] for i in range(len(pool))) if _is_indexed(pool) else iter(pool)
    first = next(examples, None)
    if first is None:
        return
    examples = chain([first], examples)
    if not _is_dataset(pool) or (isinstance(pool, IterableDataset) and not _has_one_label(first)):
        yield from (_whole(_without_label(part), what) for part in examples)
        return
    while items := [_example(_without_label(item), what) for item in islice(examples, CHUNK)]:
        yield _stack(items, what, padding)


def _has_one_label(item: Any) -> bool:
    """Whether an item of a stream is one example, not a batch: its label is one number."""
    label = next((item[k] for k in LABELS if k in item), None) if isinstance(item, Mapping) else item
    label = label[1] if isinstance(label, tuple | list) and len(label) == 2 else label
    return isinstance(label, int | np.integer) or (isinstance(label, Tensor) and label.dim() == 0)


def _example(item: Any, what: str) -> Batch:
    """Return one example as tensors. Its sequences may be of different lengths, and numbers of none."""
    if not isinstance(item, Mapping):
        return _tensor(item, what).detach()
    return _inputs(item, what)


def _is_dataset(pool: Any) -> bool:
    """Whether the pool's items are single examples: a torch or Hugging Face dataset."""
    return isinstance(pool, Dataset) or type(pool).__module__.startswith("datasets.")


def _is_indexed(pool: Any) -> bool:
    """Whether the pool is a dataset whose examples have numbers."""
    return _is_dataset(pool) and isinstance(pool, Sized) and not isinstance(pool, IterableDataset | Mapping)


def _without_label(item: Any) -> Any:
    if isinstance(item, tuple | list) and len(item) and isinstance(item[0], Tensor | np.ndarray | Mapping):
        return item[0]
    return item


def _stack(items: list[Batch], what: str, padding: int) -> Batch:
    try:
        if isinstance(items[0], Tensor):
            return torch.stack([item for item in items if isinstance(item, Tensor)])
        each = {name: [item[name] for item in items if isinstance(item, Mapping)] for name in items[0]}
        if MASK in each:  # a mask says what is padding, so sequences may be of different lengths
            lengths = [len(mask) for mask in each[MASK]]
            each = {name: _padded(rows, lengths, padding if name == IDS else 0) for name, rows in each.items()}
        return {name: torch.stack(rows) for name, rows in each.items()}
    except (RuntimeError, KeyError, TypeError) as error:
        raise FedfuseError(f"{what}'s examples differ in shape or keys ({error}): {ONE_SHAPE}") from error


def _padded(rows: list[Tensor], lengths: list[int], value: int) -> list[Tensor]:
    """Return sequences of one length, if these are sequences like the mask."""
    if any(row.dim() != 1 or len(row) != length for row, length in zip(rows, lengths, strict=True)):
        return rows
    return [F.pad(row, (0, max(lengths) - len(row)), value=value) for row in rows]


def as_labeled_pool(
    data: Any,
    what: str,
    dtype: torch.dtype | None = None,
    padding: int = 0,
    columns: Columns | None = None,
    names: Columns | None = None,
) -> tuple[TensorPool, Tensor]:
    """Return inputs and labels (N,) of (x, y), a labeled dataset or loader, or a mapping with labels.

    names: of the classes, for labels that are names.
    """
    x, y = _split(data, what)
    inputs = as_pool(x, what, dtype=dtype, padding=padding, columns=columns)
    labels = _tensor(numbered(y, what, names), f"{what}'s labels").detach().cpu()
    if labels.dim() != 1 or len(labels) != length(inputs.x) or labels.is_floating_point():
        raise FedfuseError(
            f"{what} has {length(inputs.x)} inputs and {tuple(labels.shape)} {labels.dtype} labels: give as many of "
            "both, whole numbers, or none"
        )
    return inputs, labels.long()


def _split(data: Any, what: str) -> tuple[Any, Any]:
    if isinstance(data, tuple) and len(data) == 2:
        return data
    if isinstance(data, Mapping) and (key := next((k for k in LABELS if k in data), None)):
        return {name: value for name, value in data.items() if name != key}, data[key]
    if _is_dataset(data) and not isinstance(data, Mapping):
        items = [data[i] for i in range(len(data))] if _is_indexed(data) else list(data)
        return _ListOf(items), [int(_label_of(item, what)) for item in items]
    if isinstance(data, Iterable) and not isinstance(data, str | Mapping | Tensor | np.ndarray):  # a loader
        parts = list(data)
        labels = [_tensor(_label_of(part, what), f"{what}'s labels") for part in parts]
        return parts, torch.cat(labels) if labels else torch.empty(0, dtype=torch.int64)
    raise FedfuseError(f"{what} has no labels: {LABELED}")


def _label_of(item: Any, what: str) -> Any:
    if isinstance(item, Mapping) and (key := next((k for k in LABELS if k in item), None)):
        return item[key]
    if isinstance(item, tuple | list) and len(item) == 2:
        return item[1]
    raise FedfuseError(f"{what} has no labels: {LABELED}")


class _ListOf(Dataset[Any]):
    """Examples that were read."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, number: int) -> Any:
        return self._items[number]
