"""Find the runs that a report is about."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fedfuse.records.directory import EXPERIMENT
from fedfuse.records.stored import StoredRun
from fedfuse.types import FedfuseError


def find(paths: Iterable[Path]) -> list[StoredRun]:
    """Open the runs at these paths: each a run directory, or a directory of runs (a comparison, a sweep)."""
    runs: dict[Path, StoredRun] = {}
    for path in paths:
        inside = [path] if (path / EXPERIMENT).is_file() else sorted(p.parent for p in path.glob(f"*/{EXPERIMENT}"))
        if not inside:
            hint = "no such directory" if not path.is_dir() else f"contains no run (a run has an {EXPERIMENT})"
            raise FedfuseError(f"{path}: {hint}. Give the directory of a run, a comparison or a sweep")
        runs |= {each.resolve(): StoredRun.open(each) for each in inside}
    return list(runs.values())
