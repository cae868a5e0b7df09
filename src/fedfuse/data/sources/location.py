"""Where data is looked for and where its decoded form is kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

Progress = Callable[[str, float], None]  # what is being done, and the fraction of it that is done


def _data_dir() -> Path | None:
    named = os.environ.get("FEDFUSE_DATA")
    return Path(named).expanduser() if named else None


def _cache() -> Path:
    return Path(os.environ.get("FEDFUSE_CACHE") or "~/.cache/fedfuse").expanduser()


@dataclass(frozen=True)
class Location:
    """`data_dir` is a folder in the Hugging Face hub's layout; without one, FEDFUSE_DATA names it."""

    data_dir: Path | None = field(default_factory=_data_dir)
    cache: Path = field(default_factory=_cache)
    progress: Progress | None = None

    @staticmethod
    def at(data_dir: Path | None = None, progress: Progress | None = None) -> Location:
        """The location at `data_dir`, or where the environment says when that is None."""
        return Location(data_dir=data_dir or _data_dir(), progress=progress)
