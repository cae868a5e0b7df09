"""Run directories as a report sees them: only what lies on disk, also of a run that was killed or still goes on."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedfuse.records import events, record
from fedfuse.records.directory import EVALUATION, EVENTS, EXPERIMENT, FEDERATION, MODELS, ROUNDS
from fedfuse.records.record import RoundRecord
from fedfuse.types import FedfuseError


@dataclass(frozen=True)
class RunOnDisk:
    """A run directory. What is not there yet, or was never written, is empty."""

    path: Path
    experiment: Mapping[str, Any]
    history: list[RoundRecord]

    @staticmethod
    def open(path: Path) -> RunOnDisk:
        try:
            experiment = tomllib.loads((path / EXPERIMENT).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FedfuseError(f"{path}: its {EXPERIMENT} cannot be read: {error}") from error
        return RunOnDisk(path, experiment, record.read(path / ROUNDS))

    @property
    def seed(self) -> int:
        return int(self.experiment["run"]["seed"])

    @property
    def rounds(self) -> int:
        """How many it is to have."""
        return int(self.experiment["run"]["rounds"])

    @property
    def finished(self) -> bool:
        return len(self.history) >= self.rounds

    @cached_property
    def federation(self) -> Mapping[str, Any]:
        return self._json(FEDERATION)

    @cached_property
    def evaluation(self) -> Mapping[str, Any]:
        return self._json(EVALUATION)

    @cached_property
    def events(self) -> list[events.Event]:
        try:
            return events.read(self.path / EVENTS)
        except (ValueError, TypeError):
            return []

    @property
    def labels(self) -> Sequence[str]:
        return tuple(self.federation.get("labels", ()))

    @property
    def model_hashes(self) -> Mapping[str, str]:
        """SHA-256 of each model file."""
        files = sorted((self.path / MODELS).glob("*.safetensors"))
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

    def _json(self, name: str) -> Mapping[str, Any]:
        """Written whole or not at all; but an older run has none, and a report is no place to fail for it."""
        try:
            found = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def find(paths: Iterable[Path]) -> list[RunOnDisk]:
    """The runs at these places: a run directory, or a directory that holds some (of a comparison, of a sweep)."""
    found: dict[Path, RunOnDisk] = {}
    for path in paths:
        inside = [path] if (path / EXPERIMENT).is_file() else sorted(p.parent for p in path.glob(f"*/{EXPERIMENT}"))
        if not inside:
            hint = "there is no such directory" if not path.is_dir() else f"no run is in it (a run has an {EXPERIMENT})"
            raise FedfuseError(f"{path}: {hint}. Give the directory of a run, a comparison or a sweep")
        found |= {each.resolve(): RunOnDisk.open(each) for each in inside}
    return list(found.values())
