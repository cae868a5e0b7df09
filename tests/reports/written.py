"""Run directories with numbers that a test can do on paper: written by hand, no training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tomli_w

from fedfuse.facts import (
    ClientQuality,
    ConfidenceBins,
    EnsembleQuality,
    Facts,
    FirstAndLast,
    Quality,
    Score,
    Student,
)
from fedfuse.records import events, record
from fedfuse.records.directory import fingerprint
from fedfuse.records.record import ClientRecord, RoundRecord
from fedfuse.records.sealed import sealed

LABELS = ("cat", "dog", "owl")
COUNTS = ((4, 0, 0), (1, 2, 3))
BINS = ConfidenceBins([0] * 14 + [6], [0] * 13 + [2, 2], [0.0] * 13 + [1.8, 7.6])


def distilled(client: float, average: float, ensemble: float, student: float) -> Facts:
    """The facts of a distilling algorithm."""
    before, after = Quality(accuracy=average), Quality(accuracy=student, confidence=BINS)
    return Facts(
        teachers=2,
        clients=ClientQuality(client, client, client, BINS),
        ensemble=EnsembleQuality(accuracy=ensemble, disagreement=0.25, confidence=BINS),
        agreement={"0": 0.5, "1": 1.0},
        students={"mlp:8": Student(3, FirstAndLast(1.0, 0.5), "", before, after)},
    )


def a_round(number: int, accuracy: float | None, **more: Any) -> RoundRecord:
    """100 numbers up, 100 down. Without an accuracy the round was not evaluated."""
    clients = {"0": ClientRecord(4, 1.0), "1": ClientRecord(6, 3.0)}
    settings: dict[str, Any] = {
        "validation_accuracy": accuracy,
        "clients": {k: v for k, v in clients.items() if k not in more.get("rejected", {})},
        "memory": {"server": 2_000_000},
        **more,
    }
    loss = None if accuracy is None else 1 - accuracy
    models = {} if accuracy is None or loss is None else {"mlp:8": Score(accuracy, loss)}
    seconds = {"local": 2.0, "fuse": 1.0}
    return RoundRecord(number, [0, 1], accuracy, loss, models, 100, 100, 400, 400, seconds, **settings)


def a_run(
    path: Path,
    accuracies: Sequence[float | None],
    *,
    algorithm: Mapping[str, Any] | str = "fedavg",
    seed: int = 0,
    rounds: int | None = None,
    facts: Sequence[Facts] = (),
    rejected: Mapping[int, Mapping[str, str]] | None = None,
    happened: Sequence[tuple[events.Kind, int, str]] = (("begun", 0, ""), ("finished", 0, "")),
) -> Path:
    """A run directory with these accuracies; `rejected` is by round."""
    path.mkdir(parents=True)
    experiment = {
        "name": "animals",
        "data": {"source": "animals", "validation": 0.1},
        "partition": {"scheme": "dirichlet", "clients": 2, "alpha": 0.5, "tries": 9},
        "models": {"clients": "mlp:8"},
        "local": {"epochs": 1},
        "algorithm": {"name": algorithm} if isinstance(algorithm, str) else dict(algorithm),
        "run": {"rounds": rounds or len(accuracies), "seed": seed, "workers": 1},
        "provenance": {
            "fedfuse": "0.1.0",
            "torch": "2",
            "python": "3",
            "machine": "x",
            "threads": 1,
            "data": "ab" * 32,
        },
    }
    (path / "experiment.toml").write_text(tomli_w.dumps(experiment))
    for number, accuracy in enumerate(accuracies, 1):
        more: dict[str, Any] = {"facts": facts[number - 1]} if facts else {}
        if rejected and number in rejected:
            more["rejected"] = rejected[number]
        record.append(path / "rounds.jsonl", a_round(number, accuracy, **more))
    federation = {
        "labels": LABELS,
        "counts": COUNTS,
        "architectures": ["mlp:8", "mlp:8"],
        "reported": ["mlp:8"],
        "examples": {"train": 10, "validation": 1, "test": 10, "pool": 5},
        "shape": [4],
        "run": fingerprint(experiment),
    }
    (path / "federation.json").write_text(sealed(json.dumps(federation)))
    square = [[3, 1, 0], [0, 2, 0], [1, 1, 2]]
    detail = {"mlp:8": {"confusion": square, "confidence": asdict(BINS)}}
    evaluation = {"round": len(accuracies), "models": detail, "run": fingerprint(experiment)}
    (path / "evaluation.json").write_text(sealed(json.dumps(evaluation)))
    for kind, number, text in happened:
        events.append(path / "events.jsonl", kind, number, text, fingerprint(experiment))
    return path
