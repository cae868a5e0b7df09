"""Files of one JSON object per line. A line that a crash cut short is dropped, and nothing is ever appended to it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fedfuse.files import remedy
from fedfuse.types import DamagedError

CHUNK = 1 << 16


@dataclass(frozen=True)
class Lines:
    """The complete lines of a file, and whether an incomplete one follows them."""

    texts: tuple[str, ...]
    torn: bool

    @staticmethod
    def read(path: Path) -> Lines:
        """Read the file; one that is not there has no lines."""
        try:
            *complete, rest = path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return Lines((), torn=False)
        except OSError as error:
            raise DamagedError(f"{path}: cannot be read ({error.strerror or error}): {remedy(error)}") from error
        return Lines(tuple(_text(line, number, path) for number, line in enumerate(complete, 1)), torn=bool(rest))


def _text(line: bytes, number: int, path: Path) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedError(f"{path}, line {number}: not UTF-8 at byte {error.start + 1}: restore the file") from error


def append(path: Path, text: str) -> None:
    """Append one line and sync it to disk. An incomplete last line is removed first."""
    with path.open("ab+") as file:
        _remove_torn_line(file)
        file.write(text.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _remove_torn_line(file: BinaryIO) -> None:
    end = size = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - CHUNK)
        file.seek(start)
        if (place := file.read(end - start).rfind(b"\n")) >= 0:
            end = start + place + 1
            break
        end = start
    if end != size:
        file.truncate(end)
