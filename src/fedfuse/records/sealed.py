"""JSON objects that carry their own digest, so that a changed number is noticed."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from fedfuse.files import write_whole
from fedfuse.types import DamagedError

_SEAL = re.compile(r', "digest": "([0-9a-f]{16})"\}\s*$')
T = TypeVar("T")


def digest(text: str) -> str:
    """Return a hash of a text, short enough to keep one for every line of a file."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sealed(text: str) -> str:
    """Add its own digest to the text of a JSON object, as the last key."""
    return f'{text[:-1]}, "digest": "{digest(text)}"}}'


def is_intact(text: str) -> bool:
    """Return whether a JSON object still has the digest that it was sealed with."""
    seal = _SEAL.search(text)
    return seal is not None and digest(text[: seal.start()] + "}") == seal[1]


def write_json(file: Path, facts: Any, indent: int | None = None) -> None:
    """Write a JSON object to a file atomically, sealed."""
    write_whole(file, (sealed(json.dumps(facts, indent=indent, ensure_ascii=False)) + "\n").encode())


def read_json(file: Path, kind: type[T], remedy: str = "restore it, or run again") -> T:
    """Return the contents of a sealed JSON file, validated against the dataclass `kind`."""
    remedy = f"the file was changed or damaged: {remedy}"
    try:
        content = file.read_bytes()
        facts = TypeAdapter(kind).validate_json(content)
    except OSError as error:
        raise DamagedError(f"{file}: cannot be read ({error.strerror or error})") from error
    except ValidationError as error:
        raise DamagedError(f"{file}: {first_problem(error)}; {remedy}") from error
    if not is_intact(content.decode("utf-8")):
        raise DamagedError(f"{file}: is not as it was written; {remedy}")
    return facts


def first_problem(error: ValidationError) -> str:
    """Return the place and the text of the first of pydantic's errors."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"])) or "the whole"
    return f"{place}: {first['msg'].lower()}"
