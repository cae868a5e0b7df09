"""Functions by name, with arguments that come from a file or a command line.

An algorithm, a partition, a source of data or a pool is a function whose keyword-only arguments are its
settings. So the signature is the schema: types are checked against it, defaults are read from it, and
`fedfuse show` prints it.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

from fedfuse.types import FedfuseError

Function = Callable[..., Any]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: it points to the nearest known one, if any is near."""
    close = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else "."


def resolve(name: str, catalogue: Mapping[str, Function], what: str) -> Function:
    """A name of the catalogue, or `package.module:function` of the user's own."""
    if name in catalogue:
        return catalogue[name]
    if ":" not in name:
        known = ", ".join(catalogue)
        raise FedfuseError(
            f"no {what} is called {name!r}{did_you_mean(name, catalogue)} Known: {known}; or package.module:function"
        )
    return imported(name, what)


def imported(reference: str, what: str) -> Function:
    """The user's own `package.module:function`, looked for beside their files too, as `python -m` does."""
    module, _, attribute = reference.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    try:
        function = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise FedfuseError(f"{what} {reference!r}: no module {error.name!r} in {here} or on PYTHONPATH") from error
    except AttributeError as error:
        raise FedfuseError(f"{what} {reference!r}: module {module} has no {attribute!r}") from error
    except Exception as error:  # the user's module runs when it is imported
        raise FedfuseError(f"{what} {reference!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise FedfuseError(f"{what} {reference!r} is a {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]


def settings_of(function: Function) -> list[inspect.Parameter]:
    """What a file may set: the parameters that are keyword-only or have a default. The others are the caller's."""
    parameters = inspect.signature(function).parameters.values()
    return [
        p
        for p in parameters
        if p.kind is p.KEYWORD_ONLY or (p.kind is p.POSITIONAL_OR_KEYWORD and p.default is not p.empty)
    ]


@cache
def schema(function: Function, spoken: tuple[tuple[Any, Any], ...] = ()) -> type[BaseModel]:
    """A pydantic model of the function's settings. Unknown ones are forbidden.

    `spoken` pairs an annotation with the type by which a file says it: an algorithm, by its section.
    """
    hints = get_type_hints(function)
    said = dict(spoken)
    fields: dict[str, Any] = {
        p.name: (said.get(hint := hints.get(p.name, Any), hint), ... if p.default is p.empty else p.default)
        for p in settings_of(function)
    }
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    return create_model(f"{function.__name__} settings", __config__=config, **fields)


def summary(function: Function) -> str:
    """The first line of its docstring."""
    return (inspect.getdoc(function) or "").partition("\n")[0]
