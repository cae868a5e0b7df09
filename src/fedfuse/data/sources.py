"""Data by name: the one way in is `load`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedfuse import named
from fedfuse.data import sources_made, sources_named
from fedfuse.data.hub import hub, places
from fedfuse.data.shelf import Progress, Shelf
from fedfuse.data.source import Source
from fedfuse.data.sources_own import as_source
from fedfuse.types import FedfuseError

SOURCES: Mapping[str, Callable[..., Source]] = {
    "digits": sources_made.digits,
    "fashion-mnist": sources_named.fashion_mnist,
    "mnist": sources_named.mnist,
    "cifar10": sources_named.cifar10,
    "cifar100": sources_named.cifar100,
    "tiny-imagenet": sources_named.tiny_imagenet,
    "swiss-roll": sources_made.swiss_roll,
    "synthetic": sources_made.synthetic,
}
PATTERNS: Mapping[str, str] = {  # the other forms that a name can take
    "a hub id (owner/name), folder or parquet file": named.summary(hub),
    "package.module:function": named.summary(as_source),
}


def source_function(name: str, shelf: Shelf | None = None) -> Callable[..., Any]:
    """What makes the data called `name`: its keyword arguments are the data's settings."""
    if name in SOURCES:
        return SOURCES[name]
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name):
        return named.imported(name, "data source")
    if "/" in name or any(place.exists() for place in places(shelf or Shelf.at(), name)):
        return hub
    raise FedfuseError(
        f"no data source is called {name!r}{named.did_you_mean(name, SOURCES) or '.'} Known: {', '.join(SOURCES)}; "
        f"or {'; or '.join(PATTERNS)}"
    )


def load(
    name: str,
    *,
    data_dir: Path | None = None,
    arguments: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> Source:
    """The data called `name`: a name in SOURCES, a hub id, a folder or parquet file, or package.module:function.

    `data_dir` (else FEDFUSE_DATA) is a folder in the hub's layout, looked in before anything is downloaded.
    `arguments` are those of the source's function.
    """
    return from_shelf(Shelf.at(data_dir, progress), name, arguments or {})


def from_shelf(shelf: Shelf, name: str, arguments: Mapping[str, object]) -> Source:
    """As `load`, from a shelf."""
    function = source_function(name, shelf)
    settings = _checked(function, name, arguments)
    if function is hub:
        return hub(shelf, name, **settings)
    if name in SOURCES:
        return SOURCES[name](shelf, **settings)
    return as_source(name, function(**settings))


def _checked(function: Callable[..., Any], name: str, given: Mapping[str, object]) -> dict[str, Any]:
    try:
        values = named.schema(function).model_validate(dict(given))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
        known = ", ".join(str(p) for p in named.settings_of(function)) or "none"
        raise FedfuseError(f"data source {name}: {wrong}. Its settings: {known}") from error
    return {key: getattr(values, key) for key in given}
