"""Read one parquet or CSV file as an arrow table."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection
from pathlib import Path
from typing import Any

from fedfuse.types import FedfuseError

FORMATS = (".parquet", ".csv")
IMAGES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm"})


def read_table(file: Path, texts: Collection[str] = ()) -> Any:
    """Read a file. Of a CSV file, the columns `texts` are texts even if they look like numbers."""
    if file.suffix == ".csv":
        return _read_csv(file, texts)
    from pyarrow import parquet  # type: ignore[import-untyped, unused-ignore]

    try:
        return without_dictionaries(parquet.read_table(file))
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise FedfuseError(f"{file}: not a parquet file that can be read ({error}): replace it") from error


def without_dictionaries(table: Any) -> Any:
    """Replace columns of numbered values, as pandas stores categories, by the values: `datasets` reads no others."""
    from pyarrow import types

    for number, field in enumerate(table.schema):
        if types.is_dictionary(field.type):
            table = table.set_column(number, field.name, table.column(number).cast(field.type.value_type))
    return table


def _read_csv(file: Path, texts: Collection[str]) -> Any:
    import pyarrow
    from pyarrow import csv as arrow

    content = file.read_bytes()
    if not content.strip():
        raise FedfuseError(f"{file} is empty: give a file with a first line of column names")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise FedfuseError(f"{file}, line {line}: not UTF-8 ({error.reason}): save the file as UTF-8") from error
    try:
        table = arrow.read_csv(
            pyarrow.BufferReader(content),
            parse_options=arrow.ParseOptions(delimiter=_delimiter(text), newlines_in_values=True),
            convert_options=arrow.ConvertOptions(column_types={name: pyarrow.string() for name in texts}),
        )
    except pyarrow.ArrowInvalid as error:
        raise FedfuseError(f"{file}, {_broken_line(text) or error}: correct it") from error
    if twice := [name for name in table.column_names if table.column_names.count(name) > 1]:
        raise FedfuseError(f"{file} has two columns {twice[0]!r}: give each a name of its own")
    return table


def _delimiter(text: str) -> str:
    """A comma; or a semicolon or tab, if the first line has one and no comma."""
    first = text.lstrip().partition("\n")[0]
    return next((mark for mark in (";", "\t") if mark in first and "," not in first), ",")


def _broken_line(text: str) -> str | None:
    """Say which line has another number of cells than the first, or a quote that does not end."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
    try:
        columns = len(next(rows))
        for row in rows:
            if row and len(row) != columns:
                return f"line {rows.line_num}: {len(row)} cells, and the first line names {columns} columns"
    except csv.Error as error:
        return f"line {rows.line_num}: {error}"
    return None
