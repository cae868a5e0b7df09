"""Events of a run outside its rounds: begun, resumed, warning, stopped, finished. One JSON line per event."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

Kind = Literal["begun", "resumed", "warning", "stopped", "finished"]


@dataclass(frozen=True)
class Event:
    """One event. `round` is the last round that was finished before it."""

    at: str  # ISO 8601, UTC
    kind: Kind
    round: int
    text: str = ""


def append(path: Path, kind: Kind, round: int, text: str = "") -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(Event(now, kind, round, text))) + "\n")


def read(path: Path) -> list[Event]:
    """Return the events of all complete lines. A kill may have truncated the last line."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [Event(**json.loads(line)) for line in lines]
