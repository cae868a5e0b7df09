"""`fusion.json` in the folder of a fusion: what the student was made of, and a hash of each of its files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedfuse.records.sealed import read_json
from fedfuse.types import DamagedError

FUSION, REPORT = "fusion.json", "report.html"


@dataclass(frozen=True)
class _Fusion:
    """What is read of the file."""

    files: Mapping[str, str] = field(default_factory=dict)  # the SHA-256 of each


def hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the student's files; the report may be changed."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name not in (FUSION, REPORT))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def check_files(folder: Path) -> None:
    """Refuse the folder of a fusion whose files are not as they were written. Other folders pass."""
    if not (folder / FUSION).exists():
        return
    written, now = read_json(folder / FUSION, _Fusion, "fuse again").files, hashes(folder)
    for name, sha256 in written.items():
        if now.get(name) != sha256:
            problem = "is not as it was written" if name in now else "is missing"
            raise DamagedError(f"{folder / name}: {problem}: restore it, or fuse again")
