"""Read run directories, including those of killed runs and of runs in progress. No user code is run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

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

F = TypeVar("F", FederationFacts, Evaluation)


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
        texts = list(Lines.read(path / ROUNDS).texts)
        experiment = StoredExperiment.read(path / EXPERIMENT)
        if newest is not None:
            check_lines(texts, newest.round, newest.lines, path / ROUNDS)
            if fingerprint(experiment.table) != newest.run:
                raise DamagedError(
                    f"{path / EXPERIMENT}: its settings are not those that the checkpoint was written with: restore it"
                )
            if len(texts) < newest.round:  # a kill may come between the checkpoint and its record
                texts.append(newest.record)
        return StoredRun(path, experiment, record.parse_lines(texts, path / ROUNDS))

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
        return self._facts(FEDERATION, FederationFacts)

    @cached_property
    def evaluation(self) -> Evaluation | None:
        return self._facts(EVALUATION, Evaluation)

    def _facts(self, name: str, kind: type[F]) -> F | None:
        file = self.path / name
        if not file.exists():
            return None
        facts = read_json(file, kind)
        self._check_run(facts.run, file)
        return facts

    def _check_run(self, run: str, file: Path) -> None:
        if run != fingerprint(self.experiment.table):
            raise DamagedError(f"{file}: belongs to another run, with other settings, data or versions: restore it")

    def reported_details(self) -> list[Details]:
        """Return the predictions by class and by confidence of the models that the run reports."""
        if self.evaluation is None or self.federation is None:
            return []
        models = self.evaluation.models
        return [models[arch] for arch in self.federation.reported if arch in models]

    @cached_property
    def events(self) -> list[events.Event]:
        all_events = events.read(self.path / EVENTS)
        for event in all_events:
            self._check_run(event.run, self.path / EVENTS)
        return all_events

    @property
    def labels(self) -> Sequence[str]:
        return self.federation.labels if self.federation else ()

    @property
    def model_hashes(self) -> Mapping[str, str]:
        """SHA-256 of each model file."""
        files = sorted((self.path / MODELS).glob("*.safetensors"))
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
