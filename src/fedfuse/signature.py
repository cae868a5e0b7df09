"""Functions by name, with arguments that come from a file or a command line.

An algorithm, a part, a partition, a source of data or a pool is a function or class whose arguments are its settings.
So the signature is the schema: types are checked against it, defaults are read from it, and `fedfuse show` prints it.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

from fedfuse.types import FedfuseError

Function = Callable[..., Any]
LOCAL = "python:"  # what the names of objects begin with that only this process has
_objects: dict[str, Any] = {}


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: it points to the nearest known one, if any is near."""
    close = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else "."


def resolve(name: str, catalogue: Mapping[str, Function], what: str) -> Function:
    """A name of the catalogue, `package.module:function` of the user's own, or an object of this process."""
    if name in catalogue:
        return catalogue[name]
    if name.startswith(LOCAL):
        return local_object(name)  # type: ignore[no-any-return]
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


def importable_name(thing: Any) -> str | None:
    """`package.module:name`, if importing that in another process gives this function or class; else None."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
    if module in (None, "__main__") or not name.isidentifier():
        return None
    return f"{module}:{name}" if getattr(sys.modules.get(str(module)), name, None) is thing else None


def name_of(thing: Any, label: str) -> str:
    """The importable name of a function, or else one, with this label in it, by which this process alone finds it."""
    if (name := importable_name(thing)) is not None:
        return name
    for name, known in _objects.items():
        if known is thing:
            return name
    name = f"{LOCAL}{label}-{len(_objects) + 1}"
    _objects[name] = thing
    return name


def local_object(name: str) -> Any:
    """The object that `name_of` gave this name, in this process."""
    if name not in _objects:
        raise FedfuseError(
            f"{name} is a Python object of the process that began this run, and no other process has it: put it into a "
            "module and give its name, package.module:function"
        )
    return _objects[name]


def settings_of(function: Function) -> list[inspect.Parameter]:
    """What a file may set: parameters that are keyword-only, have a default, or take any number of values.

    The others are the caller's.
    """
    parameters = inspect.signature(function).parameters.values()
    return [
        p
        for p in parameters
        if p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        or (p.kind is p.POSITIONAL_OR_KEYWORD and (p.default is not p.empty or isinstance(function, type)))
    ]


def default_of(function: Function, parameter: inspect.Parameter) -> Any:
    """The parameter's default; `inspect.Parameter.empty` where it has none. A dataclass may make it when asked."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return ()
    if is_dataclass(function):
        factories = {f.name: f.default_factory for f in fields(function) if f.default_factory is not MISSING}
        if parameter.name in factories:
            return factories[parameter.name]()
    return parameter.default


def hints_of(function: Function) -> dict[str, Any]:
    """The type of each parameter, with what it is annotated with."""
    return get_type_hints(function, include_extras=True)


def as_is(value: Any, hint: Any = None) -> Any:
    """The same."""
    return value


@cache
def schema(
    function: Function, file_type: Callable[[Any], Any] = as_is, file_value: Callable[[Any, Any], Any] = as_is
) -> type[BaseModel]:
    """A pydantic model of the function's settings. Unknown ones are forbidden.

    Where a file states an argument by another type (a part by its section), `file_type` gives that type for the
    argument's annotation, and `file_value` the default.
    """
    hints = hints_of(function)
    settings: dict[str, Any] = {}
    for p in settings_of(function):
        hint = hints.get(p.name, Any)
        hint = tuple[hint, ...] if p.kind is p.VAR_POSITIONAL else hint  # type: ignore[valid-type]
        default = default_of(function, p)
        settings[p.name] = (file_type(hint), ... if default is p.empty else file_value(default, hint))
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    return create_model(f"{function.__name__} settings", __config__=config, **settings)


def call(function: Function, settings: Mapping[str, Any]) -> Any:
    """The function's result for these settings."""
    several = [p.name for p in settings_of(function) if p.kind is p.VAR_POSITIONAL]
    values = [value for name in several for value in settings.get(name, ())]
    return function(*values, **{name: value for name, value in settings.items() if name not in several})


def summary(function: Function) -> str:
    """The first line of its docstring."""
    return (inspect.getdoc(function) or "").partition("\n")[0]
