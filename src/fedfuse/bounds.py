"""Bounds on the settings of a part. An error names the part, the setting and the value."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping

from fedfuse.types import FedfuseError


class OutOfBoundsError(FedfuseError):
    """A setting of a part is out of its bounds."""

    def __init__(self, setting: str, text: str) -> None:
        self.setting = setting
        super().__init__(text)


def positive(part: object, hint: str = "", **settings: float | None) -> None:
    """Refuse a setting that is not a finite number above 0; None passes."""
    _require(part, settings, lambda value: 0 < value < math.inf, "must be positive", hint)


def not_negative(part: object, hint: str = "", **settings: float | None) -> None:
    """Refuse a setting that is not a finite number of at least 0; None passes."""
    _require(part, settings, lambda value: 0 <= value < math.inf, "must not be negative", hint)


def below_one(part: object, hint: str = "", **settings: float | None) -> None:
    """Refuse a setting outside [0, 1); None passes."""
    _require(part, settings, lambda value: 0 <= value < 1, "must be in [0, 1)", hint)


def fits_memory(what: str, size: int) -> None:
    """Refuse something of `size` bytes that this machine's memory cannot hold."""
    if size > (memory := machine_memory()):
        raise FedfuseError(f"{what} takes {_gibibytes(size)}, and this machine has {_gibibytes(memory)}: ask for less")


def machine_memory() -> int:
    """Return this machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _gibibytes(size: int) -> str:
    return f"{size // 2**30:,} GiB" if size < 2**70 else "more than any machine has"


def _require(
    part: object, settings: Mapping[str, float | None], fits: Callable[[float], bool], rule: str, hint: str
) -> None:
    for name, value in settings.items():
        if value is not None and not fits(value):
            owner = part if isinstance(part, str) else type(part).__name__
            raise OutOfBoundsError(name, f"{owner}({name}={value}): {name} {rule}{f'; {hint}' if hint else ''}")
