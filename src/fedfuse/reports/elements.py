"""What a section of the page is made of, beside figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedfuse.reports.figure import Bars, Cell, Curves, Dots, Figure, Heat, Numbers, Parallel


@dataclass(frozen=True)
class Table:
    """Cells as they are shown. `words` are the columns that are read and not compared: they stand on the left."""

    key: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: Sequence[str] = ()
    caption: str = ""
    most: int = 200  # rows on the page; `numbers` has all
    folded: bool = False  # shown when asked for

    def numbers(self) -> Numbers:
        return Numbers(self.columns, self.rows)


@dataclass(frozen=True)
class Words:
    """A paragraph, or with `code` a command to copy."""

    text: str
    code: bool = False


@dataclass(frozen=True)
class Choice:
    """The same blocks for several lines, of which the reader looks at one."""

    key: str
    options: Mapping[str, Sequence[Figure | Table | Words]]


Block = Curves | Bars | Dots | Heat | Parallel | Table | Words | Choice


@dataclass(frozen=True)
class Card:
    """A number that the reader should see first."""

    title: str
    value: str
    below: str = ""


@dataclass(frozen=True)
class Section:
    key: str
    title: str
    blocks: Sequence[Block]
    cards: Sequence[Card] = field(default_factory=tuple)


def drawn(sections: Sequence[Section]) -> list[Figure | Table]:
    """Every figure and table, also those behind a choice."""
    found: list[Figure | Table] = []
    for section in sections:
        for block in section.blocks:
            inside = [b for option in block.options.values() for b in option] if isinstance(block, Choice) else [block]
            found += [b for b in inside if not isinstance(b, Words | Choice)]
    return found
