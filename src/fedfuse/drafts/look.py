"""Look at a data source: what it holds, which column is the label, and which one says whose an example is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedfuse.data.examples import Examples
from fedfuse.data.sources import SOURCES, load_from, source_function, validated
from fedfuse.data.sources.columns import CLASSES, LABEL, Chosen, choose, holds_texts, kind_of
from fedfuse.data.sources.decode import sizes_of
from fedfuse.data.sources.features import problem_of
from fedfuse.data.sources.hub import files_or_hub, splits_of
from fedfuse.data.sources.location import Location
from fedfuse.data.sources.reading import Reading
from fedfuse.data.sources.source import Source
from fedfuse.data.sources.tables import encoded_images, training_table
from fedfuse.types import FedfuseError

LABELS = (LABEL, "labels", "target", "class", "y", "category", "outcome", "diagnosis", "species", "sentiment")
USERS = (
    "client", "client_id", "user", "user_id", "hospital", "site", "clinic", "centre", "center", "institution", "writer",
    "author", "device", "subject", "patient", "customer", "store", "school", "bank",
)  # fmt: skip
SMALL, SIDE = 64, 32  # pixels: images up to SMALL that are all alike stay as they are; others are resized to SIDE
MOST_CLASSES = 50  # of a column that is taken for the label without its name telling so
LEAST = 10  # examples of each user, on average


@dataclass(frozen=True)
class Seen:
    """What a data source holds, and the settings of [data] with which it is read."""

    name: str
    data: Source
    settings: dict[str, Any]
    user: str | None = None  # the column that says whose an example is
    users: tuple[int, ...] = ()  # its values' numbers of training examples
    reasons: dict[str, str] = field(default_factory=dict)  # a setting -> why it was chosen
    left_out: dict[str, str] = field(default_factory=dict)  # a column -> why it is no feature

    @property
    def kind(self) -> str:
        return kind_of_examples(self.data.train)


def kind_of_examples(examples: Examples) -> str:
    if examples.texts is not None or not isinstance(examples.x, Tensor):
        return "texts"
    return "images" if examples.x.dtype == torch.uint8 or examples.x.dim() == 4 else "table"


def look(name: str, settings: Mapping[str, Any], user: str | None, location: Location) -> Seen:
    """Read the source, with these settings of [data]; what they leave open is chosen by looking at the columns."""
    function = source_function(name, location)
    chosen, reasons, left_out = dict(settings), dict[str, str](), dict[str, str]()
    if function is files_or_hub:
        how = Reading(**validated(function, name, settings))
        table = training_table(name, splits_of(location, name, how), how)
        if user is not None and user not in table.features:
            raise FedfuseError(f"{name} has no column {user!r}: --client names one of {', '.join(table.features)}")
        if "label" not in settings and (label := _label(table, how)) is not None:
            chosen["label"], reasons["label"] = label, "by its name" if label.lower() in LABELS else "by its few values"
            how = Reading(**{**vars(how), "label": label})
        user = user or _user(table, how)
        columns = choose(name, table, Reading(**{**vars(how), "users": (user,) if user else ()}))
        chosen |= _size(table, columns, settings, reasons) if columns.kind == "images" else {}
        if columns.kind == "features" and "features" not in settings:
            left_out = {c: why for c in columns.inputs if (why := problem_of([table], c, named=False)) is not None}
            if left_out:
                chosen["features"] = [c for c in columns.inputs if c not in left_out]
        if columns.kind == "texts" and "text" not in settings:
            chosen["text"] = columns.inputs[0]
    data = load_from(location, name, chosen, users=(user,) if user else ())
    if user is not None and user not in data.train.columns:
        raise FedfuseError(f"{name} has no column {user!r} of whole numbers or names: choose another --client")
    users = () if user is None else tuple(torch.unique(data.train.columns[user], return_counts=True)[1].tolist())
    return Seen(name, data, chosen, user, users, reasons, left_out)


def _label(table: Any, how: Reading) -> str | None:
    """The likeliest label, if `choose` cannot tell: by its name, else the last column of few classes."""
    try:
        choose("", table, how)
        return None
    except FedfuseError:
        candidates: list[str] = [
            c for c, f in table.features.items() if kind_of(f) in CLASSES and not _is_text(table, c)
        ]
    named = [c for name in LABELS for c in candidates if c.lower() == name]
    few = [c for c in candidates if _different(table, c) <= min(MOST_CLASSES, len(table) // 2) and not _named_user(c)]
    return next(iter(named or few[::-1]), None)


def _is_text(table: Any, column: str) -> bool:
    return kind_of(table.features[column]) == "string" and holds_texts(table, column)


def _different(table: Any, column: str) -> int:
    return len(table.data.column(column).unique())


def _named_user(column: str) -> bool:
    return column.lower() in USERS


def _user(table: Any, how: Reading) -> str | None:
    """The column that is called like users, if most of them have enough examples."""
    fitting = [
        column
        for column, feature in table.features.items()
        if _named_user(column)
        and kind_of(feature) in CLASSES
        and column not in (how.label, how.text, *(how.features or ()))
        and not table.data.column(column).null_count
        and 2 <= _different(table, column) <= len(table) // LEAST
    ]
    return fitting[0] if fitting else None


def _size(table: Any, columns: Chosen, settings: Mapping[str, Any], reasons: dict[str, str]) -> dict[str, int]:
    """The side to which images are resized, where they differ or are large."""
    sizes = sizes_of(encoded_images(table, columns.inputs[0]))
    (width, height), (widest, highest) = (tuple(pick(side) for side in zip(*sizes, strict=True)) for pick in (min, max))
    if "size" in settings or (len(set(sizes)) == 1 and max(widest, highest) <= SMALL):
        return {}
    reasons["size"] = f"the images are {width}x{height} to {widest}x{highest} pixels"
    return {"size": SIDE}


def balance(counts: Sequence[int]) -> str:
    """Say how even the classes are."""
    least, most = min(counts), max(counts)
    return f"{least:,} of each" if least == most else f"{least:,} to {most:,} of each"


def facts(seen: Seen) -> dict[str, str]:
    """Return what was seen, line by line."""
    train, test, labels = seen.data.train, seen.data.test, seen.data.labels
    shown = ", ".join(labels[:6]) + (", ..." if len(labels) > 6 else "")
    lines = {
        "kind": _kind(seen),
        "examples": f"{len(train):,} for training, {len(test):,} for tests",
        "classes": f"{len(labels)} ({shown}), {balance(torch.bincount(train.y, minlength=len(labels)).tolist())}",
    }
    for key in ("label", "text", "size"):
        if key in seen.settings:
            why = f" ({seen.reasons[key]})" if key in seen.reasons else ""
            lines[key] = f"{seen.settings[key]}{why}"
    if seen.left_out:
        lines["left out"] = "; ".join(f"{column!r} {why}" for column, why in seen.left_out.items())
    if seen.user is not None:
        lines["clients"] = f"by {seen.user!r}: {len(seen.users):,} values, {balance(seen.users)}"
    return lines


def _kind(seen: Seen) -> str:
    x, shape = seen.data.train, seen.data.train.shape
    if seen.kind == "texts":
        return "texts"
    if seen.kind == "images":
        return f"images of {'x'.join(map(str, shape))} (channels, height, width)"
    builtin = seen.name in SOURCES or len(shape) != 1
    return f"features of shape {shape}" if builtin else f"a table of {x.shape[0]} numbers, categories one-hot"
