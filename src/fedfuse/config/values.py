"""Values on the command line: one-line TOML, in which plain words need no quotes."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from fedfuse.types import FedfuseError


def parse_value(text: str) -> Any:
    """Parse a TOML value. Return any other text as a string, so that names need no quotes."""
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # also an integer of thousands of digits
        return text
    return table["value"] if len(table) == 1 else text


def parse_values(text: str) -> list[Any]:
    """Parse values separated by commas. One that starts with a bracket or quote ends where it is valid TOML."""
    values: list[Any] = []
    piece = ""
    for part in text.split(","):
        piece = f"{piece},{part}" if piece else part.strip()
        if not piece:
            raise FedfuseError("a value is missing before or after a comma")
        if piece[0] not in "[{\"'" or parse_value(piece) != piece:
            values.append(parse_value(piece.strip()))
            piece = ""
    if piece:
        raise FedfuseError("a bracket or a quote is not closed")
    return values


def format_value(value: Any) -> str:
    """Return the text that `parse_value` reads as this value, without quotes if possible."""
    if isinstance(value, str) and parse_value(value) == value and re.fullmatch(r"[^\s,\"'\[\]{}()]+", value):
        return value
    return _toml(value)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key, ensure_ascii=False)} = {_toml(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)


def parse_call(text: str) -> tuple[str, dict[str, Any]]:
    """Parse a name, or a name with settings: `fedbe`, `fedbe(samples=5, posterior="dirichlet")`."""
    match = re.fullmatch(r"([^()]+?)\s*(?:\((.*)\))?", text.strip(), re.DOTALL)
    if match is None:
        raise ValueError("unbalanced parentheses")
    try:
        return match[1], tomllib.loads(f"table = {{ {match[2] or ''} }}")["table"]
    except RecursionError as error:
        raise ValueError(str(error)) from error
