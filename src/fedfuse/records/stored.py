"""Read run directories, including those of killed runs and of runs in progress. No user code is run."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedfuse.evaluate import Details
from fedfuse.records import events, record
from fedfuse.records.directory import (
    EVALUATION,
    EVENTS,
    EXPERIMENT,
    FEDERATION,
    MODELS,
    ROUNDS,
    Evaluation,
    FederationFacts,
    read_json,
)
from fedfuse.records.record import RoundRecord
from fedfuse.types import FedfuseError


class _Section(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class _Data(_Section):
    source: str
    pool: dict[str, Any] = Field(default_factory=dict)


class _Partition(_Section):
    scheme: str
    clients: int


class _Algorithm(_Section):
    name: str


class _Run(_Section):
    rounds: int
    seed: int


class StoredExperiment(_Section):
    """The `experiment.toml` of a run. The keys that readers use are validated; others are allowed."""

    name: str = "experiment"
    data: _Data
    partition: _Partition
    models: dict[str, Any]
    local: dict[str, Any]
    algorithm: _Algorithm
    run: _Run
    provenance: dict[str, Any] = Field(default_factory=dict)

    @property
    def table(self) -> dict[str, Any]:
        """All keys, as they were written."""
        return self.model_dump()

    @staticmethod
    def read(file: Path) -> StoredExperiment:
        try:
            return StoredExperiment(**tomllib.loads(file.read_text(encoding="utf-8")))
        except OSError as error:
            raise FedfuseError(f"{file}: cannot be read ({error.strerror or error})") from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise FedfuseError(f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from error
        except ValueError as error:
            raise FedfuseError(f"{file}: not valid TOML: {error}") from error


@dataclass(frozen=True)
class StoredRun:
    """A run directory. The contents of a missing file are None or empty."""

    path: Path
    experiment: StoredExperiment
    history: list[RoundRecord]

    @staticmethod
    def open(path: Path) -> StoredRun:
        return StoredRun(path, StoredExperiment.read(path / EXPERIMENT), record.read(path / ROUNDS))

    @property
    def seed(self) -> int:
        return self.experiment.run.seed

    @property
    def rounds(self) -> int:
        """The number of rounds of the whole run."""
        return self.experiment.run.rounds

    @property
    def finished(self) -> bool:
        return len(self.history) >= self.rounds

    @cached_property
    def federation(self) -> FederationFacts | None:
        file = self.path / FEDERATION
        return read_json(file, FederationFacts) if file.exists() else None

    @cached_property
    def evaluation(self) -> Evaluation | None:
        file = self.path / EVALUATION
        return read_json(file, Evaluation) if file.exists() else None

    def reported_details(self) -> list[Details]:
        """Return the predictions by class and by confidence of the models that the run reports."""
        if self.evaluation is None or self.federation is None:
            return []
        models = self.evaluation.models
        return [models[arch] for arch in self.federation.reported if arch in models]

    @cached_property
    def events(self) -> list[events.Event]:
        return events.read(self.path / EVENTS)

    @property
    def labels(self) -> Sequence[str]:
        return self.federation.labels if self.federation else ()

    @property
    def model_hashes(self) -> Mapping[str, str]:
        """SHA-256 of each model file."""
        files = sorted((self.path / MODELS).glob("*.safetensors"))
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
