"""The parts of a section of the page, other than figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedfuse.reports.figure import Bars, Cell, Curves, Dots, Figure, Heat, Numbers, Parallel


@dataclass(frozen=True)
class Table:
    """Cells as they are shown. The columns in `words` hold text and are left-aligned."""

    key: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: Sequence[str] = ()
    caption: str = ""
    most: int = 200  # rows shown on the page; `numbers` returns all
    folded: bool = False  # collapsed until the reader opens it

    def numbers(self) -> Numbers:
        return Numbers(self.columns, self.rows)


@dataclass(frozen=True)
class Words:
    """A paragraph, or with `code` a command to copy."""

    text: str
    code: bool = False


@dataclass(frozen=True)
class Choice:
    """The same blocks for several variants; the reader selects the one to show."""

    key: str
    options: Mapping[str, Sequence[Figure | Table | Words]]


Block = Curves | Bars | Dots | Heat | Parallel | Table | Words | Choice


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
            result += [b for b in inside if not isinstance(b, Words | Choice)]
    return result
