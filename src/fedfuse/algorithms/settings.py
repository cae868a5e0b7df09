"""Arguments that an algorithm passes on to one of its parts.

A paper's function has the paper's hyperparameters and parts as arguments: `feddf(steps=200)` sets the steps of its
distiller, and `feddf(distiller=SGD(steps=200))` another distiller. An argument of type `OfDistiller[int]` is a setting
of whichever part is the `distiller`; if that part has no such setting, it is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Annotated, Any, TypeVar

from fedfuse.algorithm import SettingOf
from fedfuse.signature import did_you_mean
from fedfuse.types import FedfuseError

T = TypeVar("T")


OfAggregate = Annotated[T | None, SettingOf("aggregate")]
OfDistiller = Annotated[T | None, SettingOf("distiller")]
OfPosterior = Annotated[T | None, SettingOf("posterior")]
OfTarget = Annotated[T | None, SettingOf("target")]


def with_settings(part: T, **settings: Any) -> T:
    """Return the part with all settings that are not None replaced."""
    if isinstance(part, str):
        raise FedfuseError(f"{part!r} names a part in a file: in Python give the part itself, as in AdamCosine()")
    if isinstance(part, type):
        raise FedfuseError(f"{part.__name__} is a class: give a part, as in {part.__name__}()")
    changes = {name: value for name, value in settings.items() if value is not None}
    for name, value in changes.items():
        if problem := missing_setting(type(part), name):
            raise FedfuseError(f"{name} = {value!r}: {problem}")
    return replace(part, **changes) if changes else part  # type: ignore[type-var]  # a dataclass, or it has no settings


def missing_setting(part: Callable[..., Any], name: str) -> str | None:
    """Return why the part does not take this setting, or None if it does."""
    known = [field.name for field in fields(part)] if is_dataclass(part) else []
    if name in known:
        return None
    hint = did_you_mean(name, known)
    return f"{part.__name__} has no setting {name}{hint} Its settings: {', '.join(known) or 'none'}"
