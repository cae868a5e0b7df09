"""Read run directories, including those of killed runs and of runs in progress. No user code is run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedfuse.evaluate import Details
from fedfuse.records import checkpoint, events, record
from fedfuse.records.directory import (
    CHECKPOINTS,
    EVALUATION,
    EVENTS,
    EXPERIMENT,
    FEDERATION,
    MODELS,
    ROUNDS,
    Evaluation,
    FederationFacts,
    fingerprint,
    read_toml,
)
from fedfuse.records.lines import Lines
from fedfuse.records.record import RoundRecord
from fedfuse.records.sealed import digest, first_problem, read_json
from fedfuse.types import DamagedError


def check_lines(texts: Sequence[str], last: int, hashes: Sequence[str], file: Path) -> None:
    """Refuse record lines that are not those that were written before the checkpoint of round `last`."""
    if len(texts) < last - 1:
        raise DamagedError(
            f"{file}: holds {len(texts)} rounds, and the checkpoint was written after round {last}: restore the file"
        )
    for number, (text, written) in enumerate(zip(texts, hashes, strict=False), 1):
        if digest(text) != written:
            raise DamagedError(f"{file}, line {number}: is not as it was written: restore the file")


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
            return StoredExperiment(**read_toml(file))
        except ValidationError as error:
            raise DamagedError(f"{file}: {first_problem(error)}: restore the file") from error


@dataclass(frozen=True)
class StoredRun:
    """A run directory. The contents of a missing file are None or empty."""

    path: Path
    experiment: StoredExperiment
    history: list[RoundRecord]

    @staticmethod
    def open(path: Path) -> StoredRun:
        """Read a run directory. Records or settings that do not fit the newest checkpoint are an error."""
        newest = checkpoint.summary(path / CHECKPOINTS)  # before the records: a run in progress writes it first
        lines = Lines.read(path / ROUNDS)
        history = record.parse_lines(lines.texts, path / ROUNDS)
        experiment = StoredExperiment.read(path / EXPERIMENT)
        if newest is not None:
            check_lines(lines.texts, newest.round, newest.lines, path / ROUNDS)
            if fingerprint(experiment.table) != newest.run:
                raise DamagedError(
                    f"{path / EXPERIMENT}: its settings are not those that the checkpoint was written with: restore it"
                )
        return StoredRun(path, experiment, history)

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
