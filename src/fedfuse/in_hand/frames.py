"""Data frames as inputs: their columns as numbers, and the names by which a fitted classifier knows them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfuse.types import FedfuseError

Columns = tuple[str, ...]


def columns_of(data: Any) -> Columns | None:
    """Return the names of a data frame's columns (pandas, polars); None for anything else."""
    if not (hasattr(data, "columns") and hasattr(data, "to_numpy") and hasattr(data, "__getitem__")):
        return None
    return tuple(map(str, data.columns))


def numbers_of(frame: Any, what: str, columns: Columns | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """Return the columns of a frame as floats (N, columns), by default all of them as they stand."""
    own = columns_of(frame) or ()
    if len(set(own)) < len(own):
        twice = next(name for name in own if own.count(name) > 1)
        raise FedfuseError(f"{what} has two columns {twice!r}: give each a name of its own")
    names = dict(zip(own, frame.columns, strict=True))  # a column may be named by a number
    wanted = own if columns is None else columns
    places_of(wanted, own, what)
    rows = torch.empty(len(frame), len(wanted), dtype=dtype or torch.float64)
    for place, name in enumerate(wanted):
        values = frame[names[name]].to_numpy()
        if values.dtype.kind not in "biuf":
            raise FedfuseError(
                f"{what}'s column {name!r} holds {values.dtype}, no numbers: encode it, for teachers and student alike"
            )
        rows[:, place] = torch.from_numpy(values.astype(np.float64))
    return rows


def places_of(wanted: Sequence[str], columns: Columns, what: str) -> list[int]:
    """Return where the wanted columns are among those of a frame."""
    if missing := [name for name in wanted if name not in columns]:
        has = ", ".join(columns[:10]) + (", ..." if len(columns) > 10 else "")
        raise FedfuseError(f"{what} has no column {missing[0]!r}, but {has}: give the columns of the training data")
    return [columns.index(name) for name in wanted]


def as_frame(rows: np.ndarray[Any, Any], columns: Columns) -> Any:
    """Return rows (B, columns) as a frame, for a classifier that was fitted on one; without pandas the rows alone."""
    if find_spec("pandas") is None:
        return rows
    from pandas import DataFrame

    return DataFrame(rows, columns=list(columns))


def numbered(y: Any, what: str, labels: Columns | None) -> Any:
    """Return the labels of a series or array; names of classes as their numbers among the student's `labels`."""
    values = y.to_numpy() if hasattr(y, "to_numpy") else y
    if not isinstance(values, Sequence | np.ndarray) or not len(values) or not isinstance(values[0], str):
        return values
    if labels is None:
        raise FedfuseError(
            f"{what}'s labels are names, as {values[0]!r}: state labels=, the names of the student's classes in order"
        )
    numbers = {name: number for number, name in enumerate(labels)}
    if strangers := [name for name in values if name not in numbers]:
        raise FedfuseError(f"{what} has the label {strangers[0]!r}, and the student's are {', '.join(labels[:10])}")
    return np.array([numbers[name] for name in values])
