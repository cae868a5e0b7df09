"""Decide what the columns of a table are: images, texts, or numbers and categories; the label; and the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedfuse.data.sources.reading import Reading
from fedfuse.data.texts.store import MOST
from fedfuse.types import FedfuseError

LABEL = "label"  # the column of this name is the label, unless another is named
CLASSES = ("class", "integer", "string")  # kinds of columns that may be a label or say whose an example is
NUMBERS = ("integer", "number")


@dataclass(frozen=True)
class Chosen:
    """The columns that are read as inputs and as the label."""

    kind: Literal["images", "texts", "features"]
    inputs: tuple[str, ...]
    label: str


def choose(name: str, table: Any, how: Reading) -> Chosen:
    """Choose by the settings, else by looking: images come first, then texts; anything else is numbers and categories.

    A column of strings holds texts if most of its cells have several words and most of them differ. A single column of
    strings is also taken for texts if nothing else can be the input, or if it has no numbers with a point beside it and
    most of its cells differ.
    """
    features = table.features
    if sum(given is not None for given in (how.image, how.text, how.features)) > 1:
        given = [key for key in ("image", "text", "features") if getattr(how, key) is not None]
        raise FedfuseError(f"{name}: {' and '.join(given)} are both set: name the columns of one of them")
    if how.image is not None or (how.text is how.features is None and "image" in map(kind_of, features.values())):
        return Chosen("images", (_image(name, features, how.image),), _label(name, features, how.label))
    if how.features is None and (how.text is not None or _looks_like_texts(table, how)):
        label = _label(name, features, how.label)
        return Chosen("texts", tuple(_text(name, table, how, label)), label)
    label = _label_of_features(name, features, how)
    return Chosen("features", tuple(_features(name, features, how, label)), label)


def kind_of(feature: Any) -> str:
    """image, class, integer, number (with a point), string or other."""
    import datasets

    if isinstance(feature, datasets.Image):
        return "image"
    if isinstance(feature, datasets.ClassLabel):
        return "class"
    dtype = str(getattr(feature, "dtype", ""))
    if dtype.startswith(("int", "uint", "bool")):
        return "integer"
    if dtype.startswith(("float", "double", "decimal")):
        return "number"
    return "string" if "string" in dtype else "other"


def describe(features: Any) -> str:
    return ", ".join(f"{name} ({kind_of(feature)})" for name, feature in features.items())


def _require(name: str, features: Any, role: str, wanted: str) -> str:
    if wanted not in features:
        raise FedfuseError(f"{name} has no {role} column {wanted!r}, it has {describe(features)}")
    return wanted


def _looks_like_texts(table: Any, how: Reading) -> bool:
    strings, numbers = _strings(table, how), [c for c, f in table.features.items() if kind_of(f) == "number"]
    if any(holds_texts(table, column) for column in strings):
        return True
    if len(strings) != 1:
        return False
    others = [c for c, f in table.features.items() if kind_of(f) in (*NUMBERS, "class") and c not in _not_inputs(how)]
    return not others or (not set(numbers) - _not_inputs(how) and _mostly_different(table, strings[0]))


def _strings(table: Any, how: Reading) -> list[str]:
    """The columns of strings that may be inputs."""
    return [c for c, f in table.features.items() if kind_of(f) == "string" and c not in _not_inputs(how)]


def _not_inputs(how: Reading) -> set[str]:
    return {how.label or LABEL, *(how.columns or ()), *how.users}


def holds_texts(table: Any, column: str) -> bool:
    from pyarrow import compute  # type: ignore[import-untyped, unused-ignore]

    words = compute.match_substring_regex(table.data.column(column), r"\S\s+\S")
    return 2 * (compute.sum(words).as_py() or 0) > len(table) and _mostly_different(table, column)


def _mostly_different(table: Any, column: str) -> bool:
    from pyarrow import compute

    return bool(2 * compute.count_distinct(table.data.column(column)).as_py() > len(table))


def _text(name: str, table: Any, how: Reading, label: str) -> list[str]:
    """The column of texts, or the two columns of pairs."""
    features = table.features
    if how.text is None:
        strings = [column for column in _strings(table, how) if column != label]
        candidates = [column for column in strings if holds_texts(table, column)] or strings
        if len(candidates) == 1:
            return candidates
        found = f"several columns that may be the text, {', '.join(candidates)}" if candidates else "no text"
        raise FedfuseError(f"{name} has {found} (it has {describe(features)}): name the column with data.text")
    wanted = (how.text,) if isinstance(how.text, str) else how.text
    if not 1 <= len(wanted) <= MOST:
        raise FedfuseError(f"{name}: text names {len(wanted)} columns: name one, or two for pairs of texts")
    for column in wanted:
        _require(name, features, "text", column)
        if column == label or kind_of(features[column]) != "string":
            why = "is the label" if column == label else "holds no texts"
            raise FedfuseError(f"{name}: text = {column!r} {why} (it has {describe(features)}): name another column")
    return list(wanted)


def _image(name: str, features: Any, wanted: str | None) -> str:
    candidates: list[str] = [column for column, feature in features.items() if kind_of(feature) == "image"]
    if wanted is not None:
        candidates = [column for column in candidates if column == _require(name, features, "image", wanted)]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise FedfuseError(f"{name} has several image columns, {', '.join(candidates)}: name one with data.image")
    raise FedfuseError(
        f"{name} has no image column (it has {describe(features)}): name a column of texts with data.text, numbers and "
        "categories with data.features, or give arrays of your own with package.module:function"
    )


def _label(name: str, features: Any, wanted: str | None) -> str:
    if wanted is not None:
        return _require(name, features, "label", wanted)
    if LABEL in features and kind_of(features[LABEL]) in (*CLASSES, "number"):
        return LABEL
    for kind in CLASSES:
        candidates: list[str] = [column for column, feature in features.items() if kind_of(feature) == kind]
        if kind == "string" and len(candidates) == 1 and "image" not in map(kind_of, features.values()):
            break  # it is the text
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            raise _several_labels(name, candidates)
    raise _no_label(name, features)


def _several_labels(name: str, candidates: Sequence[str]) -> FedfuseError:
    columns = ", ".join(candidates)
    return FedfuseError(f"{name} has several columns that may be the label, {columns}: name one with data.label")


def _no_label(name: str, features: Any) -> FedfuseError:
    return FedfuseError(f"{name} has no label column (it has {describe(features)}): name one with data.label")


def _label_of_features(name: str, features: Any, how: Reading) -> str:
    """The label of a table of numbers and categories: named, called `label`, or the only column of classes."""
    if how.label is not None:
        return _require(name, features, "label", how.label)
    if LABEL in features and kind_of(features[LABEL]) in (*CLASSES, "number"):
        return LABEL
    taken = {*(how.columns or ()), *how.users, *(how.features or ())}
    candidates: list[str] = [c for c, f in features.items() if kind_of(f) in CLASSES and c not in taken]
    if len(candidates) == 1:
        return candidates[0]
    raise _several_labels(name, candidates) if candidates else _no_label(name, features)


def _features(name: str, features: Any, how: Reading, label: str) -> list[str]:
    """The columns of numbers and categories: those that are named, else all that have no other use."""
    if how.features is None:
        inputs = [c for c in features if c not in {label, *(how.columns or ()), *how.users}]
    else:
        inputs = [_require(name, features, "feature", column) for column in how.features]
    if label in inputs:
        raise FedfuseError(f"{name}: data.features names the label {label!r}: leave it out")
    if not inputs:
        raise FedfuseError(f"{name} has no column besides the label {label!r}: give columns of numbers or categories")
    if twice := [column for column in inputs if inputs.count(column) > 1]:
        raise FedfuseError(f"{name}: data.features names {twice[0]!r} twice: name it once")
    return inputs


def other_columns(name: str, tables: Sequence[Any], how: Reading, chosen: Chosen) -> list[str]:
    """The columns that are stored beside the inputs: by default those of integers, strings and classes."""
    features = tables[0].features
    taken = {*chosen.inputs, chosen.label} - set(how.users if chosen.kind == "features" else ())
    usable = [c for c, f in features.items() if kind_of(f) in CLASSES and c not in taken]
    if how.columns is None:  # nobody asked for them: those that are not whole are left out
        return [c for c in usable if all(c in t.features and not t.data.column(c).null_count for t in tables)]
    for column in how.columns:
        if column not in usable:
            raise FedfuseError(f"{name} has no column {column!r}: choose from {', '.join(usable) or 'none'}")
    return list(dict.fromkeys([*how.columns, *(c for c in how.users if c in usable)]))
