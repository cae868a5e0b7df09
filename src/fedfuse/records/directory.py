"""The files of a run directory. Reports read these files and nothing else."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedfuse.context import Context
from fedfuse.data.texts.lengths import TextFacts, text_facts
from fedfuse.dotted import differences, flatten
from fedfuse.evaluate import Details
from fedfuse.files import write_whole
from fedfuse.records.record import RoundRecord
from fedfuse.records.sealed import write_json
from fedfuse.types import DamagedError, FedfuseError

EXPERIMENT = "experiment.toml"  # the experiment with all defaults filled in
FEDERATION = "federation.json"  # each client's examples by class, and its architecture
ROUNDS = "rounds.jsonl"  # one record per round
EVALUATION = "evaluation.json"  # the last evaluated round's predictions by class and by confidence
EVENTS = "events.jsonl"  # begun, resumed, joined, warning, stopped, finished
CHECKPOINTS = "checkpoint"  # for --resume
MODELS = "models"  # the trained models
REPORT = "report.html"
SCRATCH = ".scratch"
# Settings that do not affect the results of a run. The device that was used is in its provenance.
NO_BIT = ("run.workers", "run.track", "run.device", "name")


@dataclass(frozen=True)
class ExampleCounts:
    train: int
    validation: int
    test: int
    pool: int


@dataclass(frozen=True)
class FederationFacts:
    """The contents of `federation.json`."""

    labels: Sequence[str]
    counts: Sequence[Sequence[int]]  # (K, C)
    architectures: Sequence[str]  # of each client
    reported: Sequence[str]  # the architectures whose mean accuracy is the run's
    examples: ExampleCounts
    shape: Sequence[int]  # of one input
    run: str  # the fingerprint of the run
    texts: TextFacts | None = None  # the lengths of texts, if the data are texts
    uploads: Sequence[str] = ()  # how each client sends its model

    @staticmethod
    def of(ctx: Context, run: str) -> FederationFacts:
        data = ctx.data
        pool = 0 if data.pool is None else len(data.pool)
        return FederationFacts(
            labels=list(data.labels),
            counts=data.counts.tolist(),
            architectures=list(ctx.archs),
            reported=list(ctx.reported),
            examples=ExampleCounts(len(data.train), len(data.validation), len(data.test), pool),
            shape=list(data.train.shape),
            run=run,
            texts=text_facts(data),
            uploads=[str(ctx.precision(client)) for client in range(len(ctx.archs))],
        )


@dataclass(frozen=True)
class Evaluation:
    """The contents of `evaluation.json`: the models after `round`."""

    round: int
    models: Mapping[str, Details]  # by architecture
    run: str  # the fingerprint of the run


def write_federation(path: Path, ctx: Context, run: str) -> None:
    write_json(path / FEDERATION, asdict(FederationFacts.of(ctx, run)))


def write_evaluation(path: Path, record: RoundRecord, run: str) -> None:
    write_json(path / EVALUATION, asdict(Evaluation(record.round, record.details, run)))


def write_or_compare(file: Path, table: Mapping[str, Any], refusal: str, ignored: Collection[str] = ()) -> None:
    """Write `table` to a TOML file that describes its directory.

    If the file exists with other settings, raise an error that starts with `refusal` and lists the differences. The
    `ignored` keys may differ: they do not affect results.
    """
    if file.exists():
        before = read_toml(file)
        if lines := "\n".join(f"  {line}" for line in differences(before, table, ignored)):
            raise FedfuseError(f"{refusal}\n{lines}\nUse the same settings, or choose another --out")
    write_whole(file, tomli_w.dumps(table).encode())


def read_toml(file: Path) -> dict[str, Any]:
    """Return the content of a TOML file."""
    try:
        return tomllib.loads(file.read_bytes().decode("utf-8"))
    except OSError as error:
        raise DamagedError(f"{file}: cannot be read ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{file}: not valid TOML ({error}): restore it") from error


def fingerprint(settings: Mapping[str, Any]) -> str:
    """Return the SHA-256 of everything in an `experiment.toml` that decides the bits of its run."""
    decisive = {key: value for key, value in flatten(settings).items() if key not in NO_BIT}
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()
