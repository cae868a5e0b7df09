"""What lies where in a run directory. A report reads these files and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from fedfuse.context import Context
from fedfuse.records.checkpoint import write_whole
from fedfuse.records.record import RoundRecord

EXPERIMENT = "experiment.toml"  # what was run
FEDERATION = "federation.json"  # who has how many examples of which class, and which architecture
ROUNDS = "rounds.jsonl"  # one record per round
EVALUATION = "evaluation.json"  # the last round's models by class and by confidence
EVENTS = "events.jsonl"  # begun, resumed, stopped, finished
CHECKPOINTS = "checkpoint"  # for --resume
MODELS = "models"  # the trained models
REPORT = "report.html"
SCRATCH = ".scratch"


def write_federation(path: Path, ctx: Context) -> None:
    data = ctx.data
    facts = {
        "labels": list(data.labels),
        "counts": data.counts.tolist(),  # (K, C)
        "architectures": list(ctx.archs),
        "reported": list(ctx.reported),
        "examples": {
            "train": len(data.train),
            "validation": len(data.validation),
            "test": len(data.test),
            "pool": 0 if data.pool is None else len(data.pool),
        },
        "shape": list(data.train.shape),
    }
    write_whole(path / FEDERATION, json.dumps(facts).encode())


def write_evaluation(path: Path, record: RoundRecord) -> None:
    models = {arch: details.facts() for arch, details in record.details.items()}
    write_whole(path / EVALUATION, json.dumps({"round": record.round, "models": models}).encode())
