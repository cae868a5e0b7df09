"""The interface through which a run shows its progress."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from fedfuse.records.record import RoundRecord


class Display(Protocol):
    def run_of_many(self, number: int, total: int) -> None:
        """Called before run `number` of `total`, counted from 1."""

    def preparing(self, what: str, fraction: float) -> None: ...

    def begin(self, title: str, rounds: int, history: Sequence[RoundRecord]) -> None: ...

    def round_begins(self, number: int, cohort: Sequence[int]) -> None: ...

    def answered(self, client: int) -> None: ...

    def round_ends(self, record: RoundRecord) -> None: ...

    def warn(self, message: str) -> None: ...

    def end(self, path: Path, history: Sequence[RoundRecord]) -> None: ...


class Silent:
    """Show nothing."""

    def run_of_many(self, number: int, total: int) -> None:
        pass

    def preparing(self, what: str, fraction: float) -> None:
        pass

    def begin(self, title: str, rounds: int, history: Sequence[RoundRecord]) -> None:
        pass

    def round_begins(self, number: int, cohort: Sequence[int]) -> None:
        pass

    def answered(self, client: int) -> None:
        pass

    def round_ends(self, record: RoundRecord) -> None:
        pass

    def warn(self, message: str) -> None:
        pass

    def end(self, path: Path, history: Sequence[RoundRecord]) -> None:
        pass
