"""Which runs a report is about."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fedfuse.records.directory import EXPERIMENT
from fedfuse.records.stored import StoredRun
from fedfuse.types import FedfuseError


def find(paths: Iterable[Path]) -> list[StoredRun]:
    """The runs at these places: a run directory, or a directory that holds some (of a comparison, of a sweep)."""
    runs: dict[Path, StoredRun] = {}
    for path in paths:
        inside = [path] if (path / EXPERIMENT).is_file() else sorted(p.parent for p in path.glob(f"*/{EXPERIMENT}"))
        if not inside:
            hint = "there is no such directory" if not path.is_dir() else f"no run is in it (a run has an {EXPERIMENT})"
            raise FedfuseError(f"{path}: {hint}. Give the directory of a run, a comparison or a sweep")
        runs |= {each.resolve(): StoredRun.open(each) for each in inside}
    return list(runs.values())
