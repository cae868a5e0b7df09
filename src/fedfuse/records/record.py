"""What is on record of a round, and the file that holds it: one JSON object per line."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from fedfuse.evaluate import Details
from fedfuse.types import FedfuseError


@dataclass(frozen=True)
class RoundRecord:
    """One round. `params_*` and `bytes_*` count the tensors that really travelled, over all clients."""

    round: int
    cohort: list[int]
    test_accuracy: float
    test_loss: float
    models: Mapping[str, Mapping[str, float]]  # accuracy and loss of each architecture
    params_up: int
    params_down: int
    bytes_up: int
    bytes_down: int
    seconds: Mapping[str, float]
    validation_accuracy: float | None = None  # as test_accuracy, on the server's validation data, if it has any
    clients: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # accepted ones: examples, distance
    memory: Mapping[str, int] = field(default_factory=dict)  # peak bytes so far of this process and of its workers
    rejected: Mapping[str, str] = field(default_factory=dict)  # client -> reason
    note: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    # Of each architecture, by class and by confidence. Too much for every line: the last round's is a file of its own.
    details: Mapping[str, Details] = field(default_factory=dict, repr=False, compare=False)

    def line(self) -> str:
        """Strict JSON: a value that is not finite (a loss that diverged) is written as null."""
        fields = asdict(replace(self, details={}))
        del fields["details"]
        return json.dumps(_strict(fields), allow_nan=False)

    @staticmethod
    def parse(line: str) -> RoundRecord:
        fields = json.loads(line)
        if fields["test_loss"] is None:
            fields["test_loss"] = math.nan
        for scores in fields["models"].values():
            scores["loss"] = math.nan if scores["loss"] is None else scores["loss"]
        return RoundRecord(**fields)


def _strict(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _strict(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(v) for v in value]
    return value


@dataclass
class Clock:
    """Seconds per stage. Stages nest: the time of an inner stage is not counted in the outer one."""

    seconds: dict[str, float] = field(default_factory=dict)
    _inner: list[float] = field(default_factory=lambda: [0.0])

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = perf_counter()
        self._inner.append(0.0)
        try:
            yield
        finally:
            elapsed = perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + elapsed - self._inner.pop()
            self._inner[-1] += elapsed


def append(path: Path, record: RoundRecord) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(record.line() + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise FedfuseError(
            f"{path}: could not be written ({error.strerror}); its last round is in the checkpoint: "
            "make room and go on with --resume"
        ) from error


def read(path: Path) -> list[RoundRecord]:
    """All whole records. A last line that a crash cut short is passed over: its round is in the checkpoint."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    try:
        return [RoundRecord.parse(line) for line in lines[:-1]]
    except (ValueError, TypeError, KeyError) as error:
        raise FedfuseError(f"{path}: not a record of rounds ({error}): restore it or start anew") from error


def rewrite(path: Path, records: list[RoundRecord]) -> None:
    """Replace the file in one step."""
    fresh = path.with_suffix(".tmp")
    fresh.unlink(missing_ok=True)
    fresh.touch()
    for record in records:
        append(fresh, record)
    fresh.replace(path)
