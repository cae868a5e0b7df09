"""Events of a run outside its rounds: begun, resumed, joined, warning, stopped, finished. One JSON line per event."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from fedfuse.records import lines
from fedfuse.records.sealed import is_intact, sealed
from fedfuse.types import DamagedError

Kind = Literal["begun", "resumed", "joined", "warning", "stopped", "finished"]


@dataclass(frozen=True)
class Event:
    """One event. Events are numbered from 1; `round` is the last round that was finished before it."""

    number: int

    at: str  # ISO 8601, UTC
    kind: Kind
    round: int
    text: str = ""
    run: str = ""  # the fingerprint of the run


@cache
def _adapter() -> TypeAdapter[Event]:
    return TypeAdapter(Event)


def append(path: Path, kind: Kind, round: int, text: str = "", run: str = "") -> None:
    number = len(lines.Lines.read(path).texts) + 1
    now = datetime.now(UTC).isoformat(timespec="seconds")
    lines.append(path, sealed(json.dumps(asdict(Event(number, now, kind, round, text, run)))))


def read(path: Path) -> list[Event]:
    """Return the events of all complete lines: numbers 1, 2, ... in order."""
    return [_event(text, number, path) for number, text in enumerate(lines.Lines.read(path).texts, 1)]


def _event(text: str, number: int, path: Path) -> Event:
    try:
        event = _adapter().validate_json(text)
    except ValidationError as error:
        raise DamagedError(f"{path}, line {number}: not an event of a run: restore the file, or delete it") from error
    if not is_intact(text) or event.number != number:
        raise DamagedError(f"{path}, line {number}: is not as it was written: restore the file, or delete it")
    return event
