"""Data that Python programs have in hand: frames, tables and data sets of other libraries, as tables or as arrays."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from fedfuse.data.sources.hub import library, quiet
from fedfuse.types import FedfuseError

Pair = tuple[Any, Any]


def tables_in(value: Any) -> dict[str, Any] | None:
    """Return the splits in `value` as arrow tables; None if it holds none.

    value: a pandas DataFrame, an arrow table, a Dataset or DatasetDict of the `datasets` library; or two, train and
    test.
    """
    if not holds_tables(value):
        return None
    if isinstance(value, tuple | list):
        return {"train": _arrow(value[0]), "test": _arrow(value[1])}
    if isinstance(value, Mapping):
        return {str(split): _arrow(part) for split, part in value.items()}
    return {"train": _arrow(value)}


def holds_tables(value: Any) -> bool:
    """Return whether `tables_in` finds tables here."""
    if isinstance(value, tuple | list):
        return len(value) == 2 and all(_is_table(part) for part in value)
    if isinstance(value, Mapping):  # a DatasetDict
        return bool(value) and all(_is_table(part) for part in value.values())
    return _is_table(value)


def _is_table(value: Any) -> bool:
    return any(_is_a(value, kind) for kind in ("pandas.DataFrame", "pyarrow.Table", "datasets.Dataset")) or _is_a(
        value, "datasets.IterableDataset"
    )


def _is_a(value: Any, kind: str) -> bool:
    """Return whether `value` is of this class. A library that was never imported has no values."""
    module, _, name = kind.rpartition(".")
    return module in sys.modules and isinstance(value, getattr(sys.modules[module], name))


def _arrow(value: Any) -> Any:
    """Return the table, with the features of `datasets` as its only metadata."""
    if _is_a(value, "datasets.IterableDataset"):
        raise FedfuseError("data is an IterableDataset, which has no length: load it without streaming")
    if _is_a(value, "datasets.Dataset"):
        from datasets.table import embed_table_storage

        with quiet(library()):
            plain = value.with_format(None).flatten_indices()
        features = plain.features.arrow_schema
        return embed_table_storage(plain.data.table.cast(features)).replace_schema_metadata(features.metadata)
    library()
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    if _is_a(value, "pyarrow.Table"):
        return value.replace_schema_metadata(None)
    try:
        frame = value.set_axis([str(column) for column in value.columns], axis=1)
        return pyarrow.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, ValueError) as error:
        raise FedfuseError(f"data: the DataFrame has a column of mixed values ({error}): give each one type") from error


def pairs_in(value: Any) -> Pair | None:
    """Return the arrays (x, y) of a torch Dataset, or those of two, train and test; None for anything else."""
    if isinstance(value, Dataset):
        return _pairs(value)
    if isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(part, Dataset) for part in value):
        return _pairs(value[0]), _pairs(value[1])
    return None


def _pairs(dataset: Dataset[Any]) -> Pair:
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2:
        return dataset.tensors[0], dataset.tensors[1]
    # A data set that is not iterable has a length.
    rows = () if isinstance(dataset, IterableDataset) else range(len(dataset))  # type: ignore[arg-type]
    items = list(dataset) if isinstance(dataset, IterableDataset) else [dataset[row] for row in rows]
    name = type(dataset).__name__
    if not items:
        raise FedfuseError(f"data: the {name} is empty: give one with examples")
    for row, item in enumerate(items):
        if not isinstance(item, tuple | list) or len(item) != 2:
            what = f"{len(item)} values" if isinstance(item, tuple | list) else f"a {type(item).__name__}"
            raise FedfuseError(f"data: example {row} of the {name} is {what}: each must be a pair (x, y)")
    return _stacked([x for x, _ in items], name), [y if isinstance(y, str) else int(y) for _, y in items]


def _stacked(values: list[Any], name: str) -> Any:
    if isinstance(values[0], str):
        return values
    arrays: list[Any] = [value.detach().cpu() if isinstance(value, Tensor) else np.asarray(value) for value in values]
    shapes = [tuple(array.shape) for array in arrays]
    if (other := next((row for row, shape in enumerate(shapes) if shape != shapes[0]), None)) is not None:
        raise FedfuseError(
            f"data: example {other} of the {name} is {shapes[other]}, the first is {shapes[0]}: give all one shape, "
            "for example with a transform that resizes"
        )
    return torch.stack(arrays) if isinstance(arrays[0], Tensor) else np.stack(arrays)


def is_labelled(value: Any) -> bool:
    """Return whether `value` is a pair (x, y) with one label per row, not a pair of splits."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        return False
    y = value[1]
    if isinstance(y, Tensor | np.ndarray) or _is_a(y, "pandas.Series"):
        return bool(y.ndim == 1)
    return isinstance(y, list | tuple) and len(y) > 0 and isinstance(y[0], int | str) and len(y) == len(value[0])
