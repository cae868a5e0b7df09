"""The record of a round, and the file of all records: one JSON object per line."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fedfuse.evaluate import Details
from fedfuse.facts import Facts, Number, Score
from fedfuse.types import FedfuseError


@dataclass(frozen=True)
class ClientRecord:
    """An accepted client: its claimed number of examples, and the distance of its model from the server's."""

    examples: int
    distance: float | None = None  # Euclidean; None if the client sent no model


@dataclass(frozen=True)
class RoundRecord:
    """One round. `params_*` and `bytes_*` count the tensors that were actually sent, over all clients."""

    round: int
    cohort: list[int]
    test_accuracy: float
    test_loss: Number
    models: Mapping[str, Score]  # by architecture, on test data
    params_up: int
    params_down: int
    bytes_up: int
    bytes_down: int
    seconds: Mapping[str, float]
    validation_accuracy: float | None = None  # like test_accuracy, on the server's validation data, if any
    clients: Mapping[str, ClientRecord] = field(default_factory=dict)  # accepted ones
    memory: Mapping[str, int] = field(default_factory=dict)  # peak bytes so far of this process and of its workers
    rejected: Mapping[str, str] = field(default_factory=dict)  # client -> reason
    note: str | None = None
    facts: Facts = field(default_factory=Facts)
    # By architecture. Too large for every line, so only the last round's details are written, to `evaluation.json`.
    details: Mapping[str, Details] = field(default_factory=dict, repr=False, compare=False)

    @property
    def accepted(self) -> int:
        """The number of clients whose updates were accepted."""
        return len(self.clients)

    def problems(self) -> list[str]:
        """Return a line for each problem of this round."""
        rejections = [f"round {self.round}: client {client} {reason}" for client, reason in self.rejected.items()]
        return rejections + [f"round {self.round}: {text}" for text in (self.note, self.facts.warning) if text]

    def line(self) -> str:
        """Return the record as strict JSON. A non-finite value, such as a diverged loss, is written as null."""
        fields = asdict(replace(self, details={}))
        del fields["details"]
        fields["facts"] = _without_empty(fields["facts"])
        fields["clients"] = _without_empty(fields["clients"])
        return json.dumps(_strict(fields), allow_nan=False)

    @staticmethod
    def parse(line: str) -> RoundRecord:
        """The inverse of `line`. Raise a FedfuseError if the line is not a record."""
        try:
            return _adapter().validate_json(line)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"])) or "the line"
            raise FedfuseError(f"not a record of a round ({place}: {first['msg'].lower()})") from error


@cache
def _adapter() -> TypeAdapter[RoundRecord]:
    return TypeAdapter(RoundRecord)


def _without_empty(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    items = {key: _without_empty(v) for key, v in value.items()}
    return {key: v for key, v in items.items() if v is not None and v != {} and v != ()}


def _strict(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _strict(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(v) for v in value]
    return value


def append(path: Path, record: RoundRecord) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(record.line() + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise FedfuseError(
            f"{path}: could not be written ({error.strerror}); the last round is in the checkpoint: "
            "free disk space and continue with --resume"
        ) from error


def read(path: Path) -> list[RoundRecord]:
    """Return all complete records. Skip a last line that a crash truncated: its round is in the checkpoint."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    try:
        return [RoundRecord.parse(line) for line in lines[:-1]]
    except FedfuseError as error:
        raise FedfuseError(f"{path}: {error}: restore the file, or start again with another --out") from error


def rewrite(path: Path, records: list[RoundRecord]) -> None:
    """Replace the file in one step."""
    fresh = path.with_suffix(".tmp")
    fresh.unlink(missing_ok=True)
    fresh.touch()
    for record in records:
        append(fresh, record)
    fresh.replace(path)
