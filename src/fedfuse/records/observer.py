"""Observers of a run, such as trackers and sweeps. They read records and never change results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedfuse.records.record import RoundRecord


@dataclass(frozen=True)
class RunInfo:
    """A run's directory, its whole experiment as TOML values, and its number of rounds."""

    path: Path
    settings: Mapping[str, Any]
    rounds: int


class Observer(Protocol):
    def begin(self, run: RunInfo, history: Sequence[RoundRecord]) -> None:
        """Called when the run starts or resumes; `history` holds the earlier rounds."""

    def round(self, record: RoundRecord) -> None:
        """Called when a round's record is on disk. An exception raised here stops the run, which can be resumed."""

    def end(self, history: Sequence[RoundRecord]) -> None:
        """Called when the run stops, whether it is finished or not."""


class Guarded:
    """An observer that may fail without stopping the run. After a failure, warn once and do not call it again."""

    def __init__(self, name: str, observer: Observer, warn: Callable[[str], None]) -> None:
        self._name, self._observer, self._warn = name, observer, warn
        self._failed = False

    def begin(self, run: RunInfo, history: Sequence[RoundRecord]) -> None:
        self._try(lambda: self._observer.begin(run, history))

    def round(self, record: RoundRecord) -> None:
        self._try(lambda: self._observer.round(record))

    def end(self, history: Sequence[RoundRecord]) -> None:
        self._try(lambda: self._observer.end(history))

    def _try(self, step: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            step()
        except (Exception, SystemExit) as error:  # trackers are third-party code: no error in one may stop a run
            self._failed = True
            self._warn(f"{self._name} failed and is skipped from now on: {type(error).__name__}: {error}")
