"""From a run to a tracker. The run directory notes what was logged, so that no round is logged twice."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from fedfuse.files import write_whole
from fedfuse.records.observer import RunInfo
from fedfuse.records.record import RoundRecord
from fedfuse.tracking.scalars import Parameters, parameters, scalars
from fedfuse.types import FedfuseError

TRACKING = "tracking.json"  # tracker -> the run's id there, the last round that it was told of, whether it was closed


class Tracker(Protocol):
    """A tool that draws curves, as little of it as a run needs. It may raise what it likes."""

    buffers: bool  # what it is told is safe from a kill only once it is closed, not when `log` returns

    def open(self, path: Path, known: str | None, parameters: Parameters) -> str:
        """The run's id in the tool: `known` if it still has that run, which then goes on, else that of a new one."""

    def log(self, round: int, scalars: Mapping[str, float]) -> None: ...

    def close(self, finished: bool) -> None: ...


class TrackerObserver:
    """Logs each round of a run to a tracker, once."""

    def __init__(self, name: str, tracker: Tracker) -> None:
        self._name, self._tracker = name, tracker
        self._opened = False

    def begin(self, run: RunInfo, history: Sequence[RoundRecord]) -> None:
        self._file, self._rounds = run.path / TRACKING, run.rounds
        note = self._notes().get(self._name)
        if note is None or (self._tracker.buffers and not note["closed"]):
            note = {"id": None, "round": 0}  # what a kill left there is not known: log everything, under a new id
        if len(history) == self._rounds <= note["round"]:
            return  # a finished run that is resumed again: not even an empty file is left
        try:
            self._id = self._tracker.open(run.path, note["id"], parameters(run.settings))
        except ModuleNotFoundError as error:
            raise FedfuseError(
                f'there is no module {error.name!r}: `pip install "fedfuse[{self._name}]"` brings it'
            ) from error
        self._opened = True
        self._last = note["round"] if self._id == note["id"] else 0
        for record in history:  # rounds that a kill kept from the tracker, or all if it was added only now
            self.round(record)

    def round(self, record: RoundRecord) -> None:
        if record.round <= self._last:  # logged before a resumption, which gives the same bits
            return
        self._tracker.log(record.round, scalars(record))
        self._last = record.round
        # Noted after it is logged: a kill in between logs the round twice, and leaves no gap.
        self._note(closed=False)

    def end(self, history: Sequence[RoundRecord]) -> None:
        if self._opened:
            self._tracker.close(len(history) == self._rounds)
            self._note(closed=True)

    def _note(self, closed: bool) -> None:
        mine = {"id": self._id, "round": self._last, "closed": closed}
        write_whole(self._file, json.dumps({**self._notes(), self._name: mine}).encode())

    def _notes(self) -> dict[str, Any]:
        return json.loads(self._file.read_text(encoding="utf-8")) if self._file.exists() else {}


@contextmanager
def defaults(variables: Mapping[str, str]) -> Iterator[None]:
    """Environment variables that hold inside the block where the user has not set them, and are gone behind it."""
    ours = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)
