"""Nested tables as dotted keys: `{"local": {"lr": 0.1}}` becomes `{"local.lr": 0.1}`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any


def flatten(table: Mapping[str, Any], separator: str = ".", name: Callable[[str], str] = str) -> dict[str, Any]:
    """Return all values of a nested table by their full keys. `name` is applied to each part of a key."""
    return dict(_pairs(table, "", separator, name))


def _pairs(
    table: Mapping[str, Any], prefix: str, separator: str, name: Callable[[str], str]
) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        full_key = f"{prefix}{name(key)}"
        if isinstance(value, Mapping):
            yield from _pairs(value, f"{full_key}{separator}", separator, name)
        else:
            yield full_key, value


def differences(before: Mapping[str, Any], now: Mapping[str, Any], ignored: Collection[str] = ()) -> list[str]:
    """Return a line for each dotted key whose value differs, except the `ignored` keys."""
    old, new = flatten(before), flatten(now)
    keys = sorted(key for key in {*old, *new} if key not in ignored and old.get(key) != new.get(key))
    return [f"{key}: {_show(old.get(key))} then, {_show(new.get(key))} now" for key in keys]


def _show(value: Any) -> str:
    return "not set" if value is None else repr(value)
