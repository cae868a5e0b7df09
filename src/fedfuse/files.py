"""Files and folders: atomic writes, locks and portable file names."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fedfuse.errors import FedfuseError

LOCK = ".lock"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class WriteError(FedfuseError):
    """A file that could not be written."""


def remedy(error: OSError) -> str:
    """Return what the user can do about a failed file operation: make room only if the disk is full."""
    if error.errno in FULL:
        return "make room"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "get write permission"
    if error.errno in (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOENT):
        return "choose another path"
    return "look into the cause"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically: after a crash it holds either all of the new content or the old.

    Write a temporary file, sync it, rename it, and sync the folder.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise WriteError(
            f"{path}: could not be written ({error.strerror}); the previous content is unchanged: {remedy(error)}"
        ) from error
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def locked(folder: Path, busy: str = "is in use by another process") -> Iterator[None]:
    """Hold the folder's lock. If another process holds it, raise a FedfuseError that says that the folder `busy`."""
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
    """Turn text into a file name: keep letters, digits, dots, dashes and `allowed`; replace the rest with dashes."""
    return re.sub(rf"[^A-Za-z0-9.{re.escape(allowed)}-]+", "-", text).strip("-.")
