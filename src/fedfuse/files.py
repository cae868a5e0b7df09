"""Files and folders: whole writes, locks, and names that every file system takes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fedfuse.types import FedfuseError

LOCK = ".lock"


def write_whole(path: Path, content: bytes) -> None:
    """Write the file in one step: after a crash it is there whole, or as it was before.

    Temporary file, fsync, rename, fsync of the folder.
    """
    fresh = path.with_name(f".{path.name}.tmp")
    try:
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise FedfuseError(
            f"{path}: could not be written ({error.strerror}); what was there before is untouched: "
            "make room and go on with --resume"
        ) from error
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def locked(folder: Path, busy: str = "is in use by another process") -> Iterator[None]:
    """Hold the folder's lock; a FedfuseError where another process holds it, since `folder` then `busy`."""
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise FedfuseError(f"{folder} {busy}: wait for it, or choose another --out") from None
    try:
        yield
    finally:
        lock.release()


def slug(text: str, allowed: str = "") -> str:
    """The text as a file name: letters, digits, dots, dashes and `allowed`; anything else becomes a dash."""
    return re.sub(rf"[^A-Za-z0-9.{re.escape(allowed)}-]+", "-", text).strip("-.")
