"""Names of Hugging Face models: `hf:<id or folder>`, with options such as `:layers=2` after it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from fedfuse.models.encoder import POOLINGS, Pooling
from fedfuse.types import FedfuseError

MARK = "hf:"
_NAME = re.compile(r"(.+?)((?::[a-z]+=[^:/]*)*)")


@dataclass(frozen=True)
class HfName:
    """A model's id or folder, the layers that are left of its encoder, and how its features are pooled."""

    source: str
    layers: int | None = None  # None: all
    pool: Pooling | None = None  # None: as transformers' own classifier

    def __str__(self) -> str:
        layers = "" if self.layers is None else f":layers={self.layers}"
        pool = "" if self.pool is None else f":pool={self.pool}"
        return f"{MARK}{self.source}{layers}{pool}"

    @property
    def folder(self) -> Path | None:
        """The folder, where the source is one."""
        path = Path(self.source).expanduser()
        return path if path.is_dir() else None

    @property
    def file(self) -> Path | None:
        """The configuration, where the source is a JSON file."""
        path = Path(self.source).expanduser()
        return path if path.suffix == ".json" and path.is_file() else None

    @property
    def location(self) -> str:
        """What transformers loads from."""
        path = self.folder or self.file
        return self.source if path is None else str(path)

    def without_path(self) -> HfName:
        """The name with only the last part of a local folder's path."""
        path = Path(self.source).expanduser()
        return replace(self, source=path.name) if path.exists() or path.is_absolute() else self


def parse(name: str) -> HfName:
    """`hf:folder:layers=2` -> HfName("folder", layers=2)."""
    match = _NAME.fullmatch(name.removeprefix(MARK))
    if match is None:
        raise FedfuseError(f"{name} names no model: give hf:<id or folder>")
    named = HfName(match[1])
    for option in match[2].split(":")[1:]:
        key, _, value = option.partition("=")
        if key == "layers" and named.layers is None and re.fullmatch("[1-9][0-9]{0,3}", value):
            named = replace(named, layers=int(value))
        elif key == "pool" and named.pool is None and value in POOLINGS:
            named = replace(named, pool=POOLINGS[POOLINGS.index(value)])
        else:
            raise FedfuseError(
                f"{name} has the option {option!r}: give :layers=N, the number of layers that are left, or :pool= with "
                f"{', '.join(POOLINGS)}; each once"
            )
    return named
