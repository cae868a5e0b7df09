"""Where to look for data, and where to cache it once decoded."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

Progress = Callable[[str, float], None]  # (description of the work, finished fraction)


def _data_dir() -> Path | None:
    folder = os.environ.get("FEDFUSE_DATA")
    return Path(folder).expanduser() if folder else None


def _cache() -> Path:
    return Path(os.environ.get("FEDFUSE_CACHE") or "~/.cache/fedfuse").expanduser()


@dataclass(frozen=True)
class Location:
    """`data_dir` is a folder in the Hugging Face hub's layout. Its default is FEDFUSE_DATA."""

    data_dir: Path | None = field(default_factory=_data_dir)
    cache: Path = field(default_factory=_cache)
    progress: Progress | None = None

    @staticmethod
    def at(data_dir: Path | None = None, progress: Progress | None = None) -> Location:
        """The location at `data_dir`, or at FEDFUSE_DATA if that is None."""
        return Location(data_dir=data_dir or _data_dir(), progress=progress)
