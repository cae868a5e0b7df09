"""All numbers of all rounds, one row per round and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedfuse.reports.figure import Cell, Numbers
from fedfuse.reports.read import find
from fedfuse.reports.variants import variants_of
from fedfuse.tracking.scalars import scalars


def every_round(paths: Sequence[Path]) -> Numbers:
    """Return `algorithm`, `seed`, `round` and then each scalar, under the name that trackers use."""
    rows: list[tuple[list[Cell], Mapping[str, Any]]] = [
        ([variant.name, run.seed, record.round], scalars(record))
        for variant in variants_of(find(paths))
        for run in variant.runs
        for record in run.history
    ]
    keys = list(dict.fromkeys(key for _, values in rows for key in values))
    return Numbers(["algorithm", "seed", "round", *keys], [[*head, *(v.get(k) for k in keys)] for head, v in rows])
