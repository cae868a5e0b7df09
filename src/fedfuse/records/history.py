"""The records of a run in memory, each as its compressed line: unpacked, a round of many clients takes much more."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import overload

from fedfuse.records.record import RoundRecord


class History(Sequence[RoundRecord]):
    """The records of the rounds 1, 2, ... A record is parsed when it is read, and not kept."""

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self._packed: list[bytes] = []
        for line in lines:
            self.append(line)

    def append(self, line: str) -> None:
        """Add a record, as its line in `rounds.jsonl`."""
        self._packed.append(zlib.compress(line.encode()))

    def copy(self) -> History:
        """Return the records so far, which later rounds do not change."""
        other = History()
        other._packed = list(self._packed)
        return other

    def __len__(self) -> int:
        return len(self._packed)

    @overload
    def __getitem__(self, index: int) -> RoundRecord: ...

    @overload
    def __getitem__(self, index: slice) -> list[RoundRecord]: ...

    def __getitem__(self, index: int | slice) -> RoundRecord | list[RoundRecord]:
        if isinstance(index, slice):
            return [_unpacked(line) for line in self._packed[index]]
        return _unpacked(self._packed[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"History({list(self)!r})"


def _unpacked(line: bytes) -> RoundRecord:
    return RoundRecord.parse(zlib.decompress(line).decode())
