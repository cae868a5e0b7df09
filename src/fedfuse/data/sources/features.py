"""Columns of numbers and categories as one array: numbers as they are, categories one-hot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfuse.data.sources.columns import NUMBERS, kind_of
from fedfuse.types import FedfuseError

Array = np.ndarray[Any, Any]

MOST_CATEGORIES = 100  # values of a column of categories
MISSING = "has no value in"
NAMED_PROBLEMS = 5  # columns that an error names


def encode(name: str, tables: Sequence[Any], columns: Sequence[str], named: bool) -> tuple[list[Tensor], Tensor]:
    """Return each table's features (N, D), and which of them (D,) are one-hot.

    named: whether the user named the columns; otherwise one that only numbers the rows is refused.
    """
    problems = {c: problem for c in columns if (problem := problem_of(tables, c, named)) is not None}
    if problems:
        named_ones = "; ".join(f"column {c!r} {problem}" for c, problem in list(problems.items())[:NAMED_PROBLEMS])
        more = f"; and {len(problems) - NAMED_PROBLEMS} more columns" if len(problems) > NAMED_PROBLEMS else ""
        missing, wrong = (any(word in p for p in problems.values()) for word in (MISSING, " in row "))
        remedy = "fill them in, remove these rows, or " if missing else "correct it, or " if wrong else ""
        raise FedfuseError(
            f"{name}: {named_ones}{more}: {remedy}name the columns to use in data.features, without "
            f"{'this one' if len(problems) == 1 else 'these'}"
        )
    blocks = [_block(tables, column) for column in columns]
    joined = [torch.from_numpy(np.concatenate([block[n] for block in blocks], 1)) for n in range(len(tables))]
    one_hot = [kind_of(tables[0].features[column]) not in NUMBERS for column in columns]
    widths = [block[0].shape[1] for block in blocks]
    return joined, torch.tensor(one_hot).repeat_interleave(torch.tensor(widths))


def problem_of(tables: Sequence[Any], column: str, named: bool) -> str | None:
    """Return why this column cannot be a feature, as the end of a sentence about it; None if it can be."""
    kind = kind_of(tables[0].features[column])
    if kind not in (*NUMBERS, "class", "string"):
        return f"holds {tables[0].features[column].dtype}, neither numbers nor categories"
    for table in tables:
        if column not in table.features or (kind in NUMBERS) != (kind_of(table.features[column]) in NUMBERS):
            return "is missing, or of another kind, in the test data"
    for table in tables:
        missing = _missing(table, column)
        if missing.any():
            first = int(missing.argmax()) + 1
            return f"{MISSING} {int(missing.sum()):,} of {len(table):,} rows (the first is row {first})"
        if kind in NUMBERS and not np.isfinite(values := _numbers(table, column)).all():
            return f"holds infinity, or a number too large, in row {int((~np.isfinite(values)).argmax()) + 1}"
    if kind in NUMBERS:
        return None if named else _numbering(tables[0], column)
    categories = _categories(tables, column)
    return _too_many(tables[0], column, len(categories)) if len(categories) > MOST_CATEGORIES else None


def _missing(table: Any, column: str) -> Array:
    from pyarrow import compute  # type: ignore[import-untyped, unused-ignore]

    cells = table.data.column(column)
    missing = compute.is_null(cells, nan_is_null=True)
    if kind_of(table.features[column]) == "string":  # an empty cell of a CSV file is an empty string there
        missing = compute.or_(missing, compute.equal(compute.utf8_trim_whitespace(compute.fill_null(cells, "")), ""))
    result: Array = np.asarray(missing)
    return result


def _numbers(table: Any, column: str) -> Array:
    """The column (N,) as float32."""
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    cells = table.data.column(column)
    with np.errstate(over="ignore"):
        values: Array = np.asarray(cells.cast(pyarrow.float64(), safe=False)).astype(np.float32)
    return values


def _numbering(table: Any, column: str) -> str | None:
    """Say so if the column counts the rows, as an index does that was saved with a table."""
    if kind_of(table.features[column]) != "integer" or len(table) < 3 or "bool" in str(table.features[column].dtype):
        return None
    values: Array = np.asarray(table.data.column(column))
    return "numbers the rows" if bool((np.diff(values.astype(np.int64)) == 1).all()) else None


def _too_many(table: Any, column: str, categories: int) -> str:
    """Say which cell is no number, if most cells are numbers."""
    cells: list[str] = table.data.column(column).to_pylist()
    numbers = [_is_number(cell) for cell in cells]
    if 2 * sum(numbers) > len(numbers):
        row = numbers.index(False)
        return f"holds {cells[row]!r} in row {row + 1}, which is no number"
    return f"has {categories:,} different values, too many to be categories"


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _categories(tables: Sequence[Any], column: str) -> Array:
    """The values of the column, sorted, over all tables."""
    return np.unique(np.concatenate([_cells(table, column) for table in tables]))


def _cells(table: Any, column: str) -> Array:
    cells: Array = np.asarray(table.data.column(column).to_pylist())
    return cells


def _block(tables: Sequence[Any], column: str) -> list[Array]:
    """The columns (N, d) of each table that stand for this one."""
    if kind_of(tables[0].features[column]) in NUMBERS:
        return [_numbers(table, column)[:, None] for table in tables]
    known = _categories(tables, column)
    return [(_cells(table, column)[:, None] == known).astype(np.float32) for table in tables]
