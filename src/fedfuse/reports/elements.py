"""The parts of a section of the page, other than figures."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fedfuse.reports.figure import Bars, Cell, Curves, Dots, Figure, Heat, Numbers, Parallel


@dataclass(frozen=True)
class Amount:
    """A cell whose text is more than its number: a unit, a deviation, a bound.

    values: the numbers, by what follows the name of their column in a CSV file. The page sorts by the first.
    """

    text: str
    values: Mapping[str, float | None]

    @property
    def order(self) -> float | None:
        """The number that a column is sorted by."""
        return next(iter(self.values.values()))


@dataclass(frozen=True)
class Table:
    """Cells as they are shown. The columns in `words` hold text and are left-aligned."""

    key: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell | Amount]]
    words: Sequence[str] = ()
    caption: str = ""
    most: int = 200  # rows shown on the page; `numbers` returns all
    folded: bool = False  # collapsed until the reader opens it

    def numbers(self) -> Numbers:
        """Return plain numbers: a column for each value of its amounts."""
        parts = [_parts([row[i] for row in self.rows]) for i in range(len(self.columns))]
        columns = [f"{column}{part}" for column, own in zip(self.columns, parts, strict=True) for part in own]
        rows = [
            [value for cell, own in zip(row, parts, strict=True) for value in _values(cell, own)] for row in self.rows
        ]
        return Numbers(columns, rows)


def without_empty_columns(table: Table, notes: Mapping[str, str] | None = None) -> Table:
    """Return the table without columns that are empty in every row.

    notes: sentences about columns. The caption ends with those about the columns that are left.
    """
    filled = [i for i in range(len(table.columns)) if any(row[i] is not None for row in table.rows)]
    columns = [table.columns[i] for i in filled]
    captions = [table.caption, *(text for column, text in (notes or {}).items() if column in columns)]
    return replace(
        table,
        columns=columns,
        rows=[[row[i] for i in filled] for row in table.rows],
        caption=" ".join(text for text in captions if text),
    )


def _parts(cells: Sequence[Cell | Amount]) -> list[str]:
    """Return what follows the name of a column in a CSV file: nothing for plain cells."""
    return list(dict.fromkeys(part for cell in cells if isinstance(cell, Amount) for part in cell.values)) or [""]


def _values(cell: Cell | Amount, parts: Sequence[str]) -> list[Cell]:
    if isinstance(cell, Amount):
        return [cell.values.get(part) for part in parts]
    return [cell, *(None for _ in parts[1:])]


@dataclass(frozen=True)
class Words:
    """A paragraph, or with `code` a command to copy."""

    text: str
    code: bool = False


@dataclass(frozen=True)
class Picture:
    """A PNG over the full width. shows: what it shows, for readers who do not see it."""

    png: bytes
    shows: str

    @property
    def source(self) -> str:
        """The picture itself as the address of an image."""
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"


@dataclass(frozen=True)
class Choice:
    """The same blocks for several variants; the reader selects the one to show."""

    key: str
    options: Mapping[str, Sequence[Figure | Table | Words]]


Block = Curves | Bars | Dots | Heat | Parallel | Table | Words | Picture | Choice


@dataclass(frozen=True)
class Card:
    """A key number, shown at the top of its section."""

    title: str
    value: str
    below: str = ""


@dataclass(frozen=True)
class Section:
    key: str
    title: str
    blocks: Sequence[Block]
    cards: Sequence[Card] = field(default_factory=tuple)


def figures_and_tables(sections: Sequence[Section]) -> list[Figure | Table]:
    """Return every figure and table, including those inside a choice."""
    result: list[Figure | Table] = []
    for section in sections:
        for block in section.blocks:
            inside = [b for option in block.options.values() for b in option] if isinstance(block, Choice) else [block]
            result += [b for b in inside if not isinstance(b, Words | Picture | Choice)]
    return result
