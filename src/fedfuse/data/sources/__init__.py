"""Load data by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedfuse import signature
from fedfuse.data.sources import made, named
from fedfuse.data.sources.checks import check_source, check_unlabeled
from fedfuse.data.sources.hub import files_or_hub, from_disk, places, read_files_or_hub
from fedfuse.data.sources.location import Location, Progress
from fedfuse.data.sources.memory import names_arrays, names_table, read_arrays, table_folder
from fedfuse.data.sources.own import as_source
from fedfuse.data.sources.reading import Reading
from fedfuse.data.sources.source import Source
from fedfuse.types import FedfuseError

SOURCES: Mapping[str, Callable[..., Source]] = {
    "digits": made.digits,
    "fashion-mnist": named.fashion_mnist,
    "mnist": named.mnist,
    "cifar10": named.cifar10,
    "cifar100": named.cifar100,
    "tiny-imagenet": named.tiny_imagenet,
    "ag-news": named.ag_news,
    "sst2": named.sst2,
    "sent140": named.sent140,
    "swiss-roll": made.swiss_roll,
    "synthetic": made.synthetic,
}
PATTERNS: Mapping[str, str] = {  # the other forms that a name can take
    "a hub id (owner/name), folder, parquet or CSV file": signature.summary(files_or_hub),
    "package.module:function": signature.summary(as_source),
}


LONGEST = 255  # characters of a file's name on most systems


def source_function(name: str, location: Location | None = None) -> Callable[..., Any]:
    """The function that makes the data called `name`. Its keyword arguments are the data's settings."""
    if name in SOURCES:
        return SOURCES[name]
    if names_arrays(name):
        return arrays_given
    if names_table(name):
        return files_or_hub
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name):
        return signature.import_function(name, "data source")
    if len(name) <= LONGEST and ("/" in name or any(p.exists() for p in places(location or Location.at(), name))):
        return files_or_hub
    hint = signature.did_you_mean(name, SOURCES)
    raise FedfuseError(
        f"no data source is called {name[:LONGEST]!r}{hint} Known: {', '.join(SOURCES)}; or {'; or '.join(PATTERNS)}"
    )


def arrays_given() -> None:
    """Arrays that are passed in Python: a placeholder without settings."""


def load(
    name: str,
    *,
    data_dir: Path | None = None,
    arguments: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> Source:
    """The data called `name`: a name in SOURCES, a hub id, a folder, parquet or CSV file, or package.module:function.

    `data_dir` (default: FEDFUSE_DATA) is a folder in the hub's layout, searched before anything is downloaded.
    `arguments` are the settings of the source's function.
    """
    return load_from(Location.at(data_dir, progress), name, arguments or {})


def load_from(
    location: Location,
    name: str,
    arguments: Mapping[str, object],
    *,
    labeled: bool = True,
    users: tuple[str, ...] = (),
) -> Source:
    """Like `load`, with a location. Without `labeled`, the labels and the test data do not matter.

    users: columns of a table by which the data will be split; they are not features unless they are named.
    """
    function = source_function(name, location)
    settings = validated(function, name, arguments)
    check = check_source if labeled else check_unlabeled
    return check(_load(function, location, name, settings, users), name)


def _load(
    function: Callable[..., Any],
    location: Location,
    name: str,
    settings: Mapping[str, Any],
    users: tuple[str, ...],
) -> Source:
    if function is arrays_given:
        return read_arrays(location, name)
    if names_table(name):
        return from_disk(location, "data", table_folder(location, name), Reading(**settings, users=users))
    if function is files_or_hub:
        return read_files_or_hub(location, name, Reading(**settings, users=users))
    if name in SOURCES:
        return SOURCES[name](location, **settings)
    try:
        result = function(**settings)
    except FedfuseError:
        raise
    except (Exception, SystemExit) as error:  # a user's function may raise anything, and even leave the program
        raise FedfuseError(f"data source {name}: its function failed: {type(error).__name__}: {error}") from error
    return as_source(name, result)


def validated(function: Callable[..., Any], name: str, arguments: Mapping[str, object]) -> dict[str, Any]:
    """Return these settings of a source's function with their types. Raise an error for those that it does not take."""
    try:
        values = signature.schema(function).model_validate(dict(arguments))
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
        known = ", ".join(str(p) for p in signature.settings_of(function)) or "none"
        raise FedfuseError(f"data source {name}: {problems}. Its settings: {known}") from error
    return {key: getattr(values, key) for key in arguments}
