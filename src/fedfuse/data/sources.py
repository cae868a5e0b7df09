"""Data by name: the one way in is `load`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from fedfuse.data import sources_made, sources_named
from fedfuse.data.arguments import checked
from fedfuse.data.hub import hub, places
from fedfuse.data.shelf import Progress, Shelf
from fedfuse.data.source import Source
from fedfuse.data.sources_own import own
from fedfuse.named import imported
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
PATTERNS: Mapping[str, Callable[..., Source]] = {  # the other forms that a name can take
    "owner/name, folder or file": hub,
    "package.module:function": own,
}


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
    if name in SOURCES:
        return SOURCES[name](shelf, **checked(SOURCES[name], arguments, name))
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name):
        return own(name, arguments)
    if "/" in name or any(place.exists() for place in places(shelf, name)):
        return hub(shelf, name, **checked(hub, arguments, name))
    close = difflib.get_close_matches(name, SOURCES, n=1)
    raise FedfuseError(
        f"there is no data called {name!r}{f', did you mean {close[0]!r}?' if close else ':'} "
        f"Use one of {', '.join(SOURCES)}, or {', or '.join(PATTERNS)}"
    )


def function_of(name: str) -> Callable[..., object]:
    """The function that `name` stands for, whose signature says what may be set."""
    if name in SOURCES:
        return SOURCES[name]
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name):
        return imported(name, "data source")
    return hub
