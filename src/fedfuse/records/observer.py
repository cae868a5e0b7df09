"""Observers of a run: trackers and searches. An observer sees records and never touches the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedfuse.records.record import RoundRecord


@dataclass(frozen=True)
class RunInfo:
    """What a run is: its directory, its whole experiment as TOML states it, and how many rounds it has."""

    path: Path
    settings: Mapping[str, Any]
    rounds: int


class Observer(Protocol):
    def begin(self, run: RunInfo, history: Sequence[RoundRecord]) -> None:
        """The run begins or goes on; `history` holds the rounds before."""

    def round(self, record: RoundRecord) -> None:
        """A round is over, and on disk. What is raised here ends the run, which can be resumed."""

    def end(self, history: Sequence[RoundRecord]) -> None:
        """The run stops here: it has all its rounds, or something ended it."""


class Guarded:
    """An observer that may fail without stopping the run: it is warned about once and not asked again."""

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
        except (Exception, SystemExit) as error:  # a tracker is somebody else's code: nothing of it may end a run
            self._failed = True
            self._warn(f"{self._name} failed and is left out from here on: {type(error).__name__}: {error}")
