"""The record of a round, and the file of all records: one JSON object per line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter, ValidationError, ValidationInfo

from fedfuse.evaluate import Details
from fedfuse.facts import Facts, Score
from fedfuse.files import WriteError, remedy, write_whole
from fedfuse.records import lines
from fedfuse.records.sealed import first_problem, is_intact, sealed
from fedfuse.types import DamagedError


def _loss(value: float | None, info: ValidationInfo) -> float | None:
    """Read null as NaN, a loss that diverged, where there is an accuracy: without one, nothing was evaluated."""
    return math.nan if value is None and info.data.get("test_accuracy") is not None else value


@dataclass(frozen=True)
class ClientRecord:
    """An accepted client: its claimed number of examples, and the distance of its model from the server's."""

    examples: int
    distance: float | None = None  # Euclidean; None if the client sent no model


@dataclass(frozen=True)
class RoundRecord:
    """One round. `params_*` and `bytes_*` count the tensors that were actually sent, over all clients.

    A round that was not evaluated (`run.evaluate_every`) has no accuracy, no loss and no scores of models.
    """

    round: int
    cohort: list[int]
    test_accuracy: float | None
    test_loss: Annotated[float | None, BeforeValidator(_loss)]
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
    # By architecture. Too large for every line, so only those of the last evaluated round are in `evaluation.json`.
    details: Mapping[str, Details] = field(default_factory=dict, repr=False, compare=False)

    @property
    def evaluated(self) -> bool:
        """Whether the server's models were evaluated after this round."""
        return self.test_accuracy is not None

    @property
    def accepted(self) -> int:
        """The number of clients whose updates were accepted."""
        return len(self.clients)

    def problems(self) -> list[str]:
        """Return a line for each problem of this round."""
        rejections = [f"round {self.round}: client {client} {reason}" for client, reason in self.rejected.items()]
        return rejections + [f"round {self.round}: {text}" for text in (self.note, self.facts.warning) if text]

    def line(self) -> str:
        """Return the record as strict JSON, sealed. A non-finite value, such as a diverged loss, is written as null."""
        fields = asdict(replace(self, details={}))
        del fields["details"]
        fields["facts"] = _without_empty(fields["facts"])
        fields["clients"] = _without_empty(fields["clients"])
        return sealed(json.dumps(strict(fields), allow_nan=False))

    @staticmethod
    def parse(line: str) -> RoundRecord:
        """The inverse of `line`. Raise a DamagedError if the line is not a record, or not as it was written."""
        try:
            record = _adapter().validate_json(line)
        except ValidationError as error:
            raise DamagedError(f"not a record of a round ({first_problem(error)})") from error
        if not is_intact(line):
            raise DamagedError("is not as it was written")
        return record


def accuracies(history: Iterable[RoundRecord]) -> dict[int, float]:
    """Return the test accuracy after each round that was evaluated, by the round's number."""
    return {record.round: record.test_accuracy for record in history if record.test_accuracy is not None}


@cache
def _adapter() -> TypeAdapter[RoundRecord]:
    return TypeAdapter(RoundRecord)


def _without_empty(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    items = {key: _without_empty(v) for key, v in value.items()}
    return {key: v for key, v in items.items() if v is not None and v is not False and v != {} and v != ()}


def strict(value: Any) -> Any:
    """Return the value with null in place of infinities and NaN, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: strict(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [strict(v) for v in value]
    return value


def append(path: Path, record: RoundRecord) -> str:
    """Append the record, and return its line."""
    line = record.line()
    try:
        lines.append(path, line)
    except OSError as error:
        raise WriteError(
            f"{path}: could not be written ({error.strerror}); its last round is in the checkpoint: {remedy(error)}"
        ) from error
    return line


def read(path: Path) -> list[RoundRecord]:
    """Return the records of all complete lines: rounds 1, 2, ... in order.

    A crash may cut the last line short: its round is in the checkpoint.
    """
    return parse_lines(lines.Lines.read(path).texts, path)


def parse_lines(texts: Sequence[str], path: Path) -> list[RoundRecord]:
    records: list[RoundRecord] = []
    for number, text in enumerate(texts, 1):
        try:
            record = RoundRecord.parse(text)
        except DamagedError as error:
            raise DamagedError(f"{path}, line {number}: {error}: restore the file") from error
        if record.round != number:
            raise DamagedError(
                f"{path}, line {number}: holds round {record.round} where round {number} belongs: lines are missing, "
                "doubled or in another order; restore the file"
            )
        records.append(record)
    return records


def rewrite(path: Path, texts: Sequence[str]) -> None:
    """Replace the file's lines in one step."""
    write_whole(path, "".join(f"{text}\n" for text in texts).encode())
