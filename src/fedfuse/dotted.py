"""Nested tables by dotted keys: `{"local": {"lr": 0.1}}` is `{"local.lr": 0.1}`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any


def flatten(table: Mapping[str, Any], separator: str = ".", name: Callable[[str], str] = str) -> dict[str, Any]:
    """All values of a nested table by their whole keys; `name` is applied to each part of a key."""
    return dict(_pairs(table, "", separator, name))


def _pairs(
    table: Mapping[str, Any], prefix: str, separator: str, name: Callable[[str], str]
) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        whole = f"{prefix}{name(key)}"
        if isinstance(value, Mapping):
            yield from _pairs(value, f"{whole}{separator}", separator, name)
        else:
            yield whole, value


def differences(before: Mapping[str, Any], now: Mapping[str, Any], ignored: Collection[str] = ()) -> list[str]:
    """A line for each dotted key whose value is another one now, but for the `ignored` keys."""
    then, today = flatten(before), flatten(now)
    keys = sorted(key for key in {*then, *today} if key not in ignored and then.get(key) != today.get(key))
    return [f"{key}: {_shown(then.get(key))} then, {_shown(today.get(key))} now" for key in keys]


def _shown(value: Any) -> str:
    return "not set" if value is None else repr(value)
