"""Values on a command line: TOML on one line, in which a word needs no quotes."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from fedfuse.types import FedfuseError


def parse_value(text: str) -> Any:
    """A TOML value; what is not one is a word, so that names need no quotes."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


def parse_values(text: str) -> list[Any]:
    """Values between commas. What begins with a bracket or a quote goes on until it is a whole TOML value."""
    values: list[Any] = []
    piece = ""
    for part in text.split(","):
        piece = f"{piece},{part}" if piece else part.strip()
        if not piece:
            raise FedfuseError("a value is missing beside a comma")
        if piece[0] not in "[{\"'" or parse_value(piece) != piece:
            values.append(parse_value(piece.strip()))
            piece = ""
    if piece:
        raise FedfuseError("a bracket or a quote is not closed")
    return values


def format_value(value: Any) -> str:
    """The text that `parse_value` reads as this value: a word without quotes, where it stays one."""
    if isinstance(value, str) and parse_value(value) == value and re.fullmatch(r"[^\s,\"'\[\]{}()]+", value):
        return value
    return _toml(value)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key, ensure_ascii=False)} = {_toml(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)
