"""Pools of any kind as tensors: arrays, mappings, datasets and loaders. Past a bound they are kept in a mapped file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from fedfuse import tree
from fedfuse.batches import Batch, length
from fedfuse.fusion.spill import BOUND, SpillingRows
from fedfuse.fusion.table import TensorPool
from fedfuse.types import FedfuseError

LABELS = ("label", "labels", "y", "target", "targets")  # keys that are not inputs
ENCODED = ("input_ids", "pixel_values")
CHUNK = 256  # examples of a dataset that are stacked at once
REMEDY = "give tensors, arrays, a mapping of them, a dataset, or batches"


def as_pool(pool: Any, what: str = "the pool", bound: int = BOUND) -> TensorPool:
    """Return the inputs of a pool. Labels are dropped; inputs must be finite numbers of one shape."""
    inputs = _whole(pool, what) if _is_batch(pool) else _read(pool, what, bound)
    for name, tensor in ({"": inputs} if isinstance(inputs, Tensor) else inputs).items():
        _check(tensor, f"{what}'s {name}" if name else what)
    return TensorPool(inputs)


def _is_batch(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray) or (
        isinstance(value, Mapping) and all(isinstance(v, Tensor | np.ndarray | list) for v in value.values())
    )


def _whole(value: Any, what: str) -> Batch:
    """Return arrays and mappings of arrays as tensors, without labels."""
    if not isinstance(value, Mapping):
        return _tensor(value, what).detach()
    inputs = {name: v for name, v in value.items() if name not in LABELS}
    if any(name in inputs for name in ENCODED):  # the text that the ids were made of may still be there
        inputs = {name: v for name, v in inputs.items() if not _is_text(v)}
    tensors = {name: _tensor(v, f"{what}'s {name}").detach() for name, v in inputs.items()}
    if not tensors:
        raise FedfuseError(f"{what} has only {', '.join(value) or 'nothing'}: add the inputs")
    if len({len(t) for t in tensors.values()}) > 1:
        sizes = ", ".join(f"{name} {len(t)}" for name, t in tensors.items())
        raise FedfuseError(f"{what}'s tensors have different lengths ({sizes}): give one row per example")
    return tensors


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and bool(value) and isinstance(value[0], str))


def _tensor(value: Any, what: str) -> Tensor:
    try:
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


def _read(pool: Any, what: str, bound: int) -> Batch:
    """Read a dataset or batches once, in order."""
    columns: dict[str, SpillingRows] = {}
    single = True
    for batch in _batches(pool, what):
        single = isinstance(batch, Tensor)
        for name, tensor in ({"": batch} if isinstance(batch, Tensor) else batch).items():
            columns.setdefault(name, SpillingRows(tensor.dtype, bound)).append(tensor)
    if not columns:
        raise FedfuseError(f"{what} is empty: give unlabeled inputs to distil on")
    return columns[""].whole() if single else {name: rows.whole() for name, rows in columns.items()}


def _batches(pool: Any, what: str) -> Iterator[Batch]:
    if isinstance(pool, str) or not (isinstance(pool, Iterable) or _is_indexed(pool)):
        raise FedfuseError(f"{what} is a {type(pool).__name__}: {REMEDY}")
    if not _is_indexed(pool):
        for part in pool:
            yield _whole(_without_label(part), what)
        return
    for start in range(0, len(pool), CHUNK):
        items = [_whole(_without_label(pool[i]), what) for i in range(start, min(start + CHUNK, len(pool)))]
        yield _stack(items, what)


def _is_indexed(pool: Any) -> bool:
    """Whether the pool's items are single examples: a torch or Hugging Face dataset."""
    dataset = isinstance(pool, Dataset) or type(pool).__module__.startswith("datasets.")
    return dataset and isinstance(pool, Sized) and not isinstance(pool, IterableDataset)


def _without_label(item: Any) -> Any:
    if isinstance(item, tuple | list) and len(item) and isinstance(item[0], Tensor | np.ndarray | Mapping):
        return item[0]
    return item


def _stack(items: list[Batch], what: str) -> Batch:
    try:
        if isinstance(items[0], Tensor):
            return torch.stack([item for item in items if isinstance(item, Tensor)])
        return {name: torch.stack([item[name] for item in items if isinstance(item, Mapping)]) for name in items[0]}
    except (RuntimeError, KeyError) as error:
        raise FedfuseError(f"{what}'s examples differ in shape or keys ({error}): pad or resize them to one") from error


def as_labeled_pool(data: Any, what: str) -> tuple[TensorPool, Tensor]:
    """Return inputs and labels (N,) of (x, y), a labeled dataset, or a mapping with labels."""
    x, y = _split(data, what)
    inputs, labels = as_pool(x, what), _tensor(y, f"{what}'s labels").detach().cpu()
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
    if _is_indexed(data):
        items = [data[i] for i in range(len(data))]
        if items and isinstance(items[0], Mapping) and (key := next((k for k in LABELS if k in items[0]), None)):
            return data, [item[key] for item in items]
        if items and isinstance(items[0], tuple | list) and len(items[0]) == 2:
            return data, [int(item[1]) for item in items]
    raise FedfuseError(f"{what} has no labels: give (x, y), a dataset of them, or a mapping with 'labels'")
