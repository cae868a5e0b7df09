"""Bounds on the settings of a part. An error names the part, the setting and the value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from fedfuse.types import FedfuseError


def positive(part: object, hint: str = "", **settings: float | None) -> None:
    """Refuse a setting that is not a finite number above 0; None passes."""
    _require(part, settings, lambda value: 0 < value < math.inf, "must be positive", hint)


def not_negative(part: object, hint: str = "", **settings: float | None) -> None:
    """Refuse a setting that is not a finite number of at least 0; None passes."""
    _require(part, settings, lambda value: 0 <= value < math.inf, "must not be negative", hint)


def below_one(part: object, hint: str = "", **settings: float | None) -> None:
    """Refuse a setting outside [0, 1); None passes."""
    _require(part, settings, lambda value: 0 <= value < 1, "must be in [0, 1)", hint)


def _require(
    part: object, settings: Mapping[str, float | None], fits: Callable[[float], bool], rule: str, hint: str
) -> None:
    for name, value in settings.items():
        if value is not None and not fits(value):
            owner = part if isinstance(part, str) else type(part).__name__
            raise FedfuseError(f"{owner}({name}={value}): {name} {rule}{f'; {hint}' if hint else ''}")
