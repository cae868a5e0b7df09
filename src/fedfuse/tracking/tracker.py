"""Log a run to a tracker. The run directory records what was logged, so that a resumed run does not log it again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from fedfuse.records.observer import RunInfo
from fedfuse.records.record import RoundRecord
from fedfuse.records.sealed import read_json, write_json
from fedfuse.tracking.scalars import Parameters, parameters, scalars
from fedfuse.types import FedfuseError

TRACKING = "tracking.json"  # tracker -> the run's id there, the last round that was logged, whether it was closed


@dataclass(frozen=True)
class _Entry:
    id: str | None
    round: int
    closed: bool = False


@dataclass(frozen=True)
class _Entries:
    """The contents of `tracking.json`."""

    trackers: Mapping[str, _Entry]


_NEW = _Entry(None, 0)


class Tracker(Protocol):
    """The interface of a tracking tool. Its methods may raise anything."""

    buffers: bool  # whether logged rounds survive a kill only after `close`, not when `log` returns

    def open(self, path: Path, known: str | None, parameters: Parameters) -> str:
        """Continue the run `known` if the tool still has it, else start a new one. Return the run's id in the tool."""

    def log(self, round: int, scalars: Mapping[str, float]) -> None: ...

    def close(self, finished: bool) -> None: ...


class TrackerObserver:
    """Logs each round of a run to a tracker, once."""

    def __init__(self, name: str, tracker: Tracker) -> None:
        self._name, self._tracker = name, tracker
        self._opened = False

    def begin(self, run: RunInfo, history: Sequence[RoundRecord]) -> None:
        self._file, self._rounds = run.path / TRACKING, run.rounds
        entry = self._load().get(self._name, _NEW)
        if self._tracker.buffers and not entry.closed:
            entry = _NEW  # what was logged before a kill is unknown: log everything, under a new id
        if len(history) == self._rounds <= entry.round:
            return  # a finished run is resumed: write nothing, not even an empty file
        try:
            self._id = self._tracker.open(run.path, entry.id, parameters(run.settings))
        except ModuleNotFoundError as error:
            raise FedfuseError(
                f'there is no module {error.name!r}: install it with `pip install "fedfuse[{self._name}]"`'
            ) from error
        self._opened = True
        self._last = entry.round if self._id == entry.id else 0
        for record in history:  # rounds that a kill left unlogged, or all if the tracker is new
            self.round(record)

    def round(self, record: RoundRecord) -> None:
        if record.round <= self._last:  # logged before the run was resumed, with the same bits
            return
        self._tracker.log(record.round, scalars(record))
        self._last = record.round
        # Save after logging: a kill in between logs the round twice, but leaves no gap.
        self._save(closed=False)

    def end(self, history: Sequence[RoundRecord]) -> None:
        if self._opened:
            self._tracker.close(len(history) == self._rounds)
            self._save(closed=True)

    def _save(self, closed: bool) -> None:
        entries = {**self._load(), self._name: _Entry(self._id, self._last, closed)}
        write_json(self._file, asdict(_Entries(entries)))

    def _load(self) -> Mapping[str, _Entry]:
        if not self._file.exists():
            return {}
        return read_json(self._file, _Entries, "delete it, and every round is logged again").trackers


@contextmanager
def defaults(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside the block, except those that the user has set."""
    missing = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)
