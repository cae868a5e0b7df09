"""Functions that are named in a file or on a command line, with their arguments.

An algorithm, a part, a partition, a data source or a pool is a function or class whose arguments are its settings. The
signature is the schema: types are checked against it, defaults are read from it, and `fedfuse show` prints it.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from itertools import count
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo, create_model, field_validator

from fedfuse.errors import FedfuseError

Function = Callable[..., Any]
NONE = "none"  # how a file states None for a setting whose default is something else: TOML has no null
LOCAL = "python:"  # prefix of the names of objects that exist in this process only
_objects: dict[str, Any] = {}


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown word: it suggests the closest known word, if one is close."""
    close = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else "."


def resolve(name: str, catalogue: Mapping[str, Function], what: str) -> Function:
    """Return the function of this name: of the catalogue, the user's `package.module:function`, or a local object."""
    if name in catalogue:
        return catalogue[name]
    if name.startswith(LOCAL):
        return local_object(name)  # type: ignore[no-any-return]
    if ":" not in name:
        known = ", ".join(catalogue)
        raise FedfuseError(
            f"no {what} is called {name!r}{did_you_mean(name, catalogue)} Known: {known}; or package.module:function"
        )
    return import_function(name, what)


def import_function(reference: str, what: str) -> Function:
    """Import the user's `package.module:function`. The current folder is searched too, as with `python -m`."""
    module, _, attribute = reference.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    try:
        function = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise FedfuseError(f"{what} {reference!r}: no module {error.name!r} in {here} or on PYTHONPATH") from error
    except AttributeError as error:
        raise FedfuseError(f"{what} {reference!r}: module {module} has no {attribute!r}") from error
    except Exception as error:  # importing runs the user's code
        raise FedfuseError(f"{what} {reference!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise FedfuseError(f"{what} {reference!r} is a {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]


def importable_name(thing: Any) -> str | None:
    """Return `package.module:name` if another process can import this function or class by it, else None."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
    if module in (None, "__main__") or not name.isidentifier():
        return None
    return f"{module}:{name}" if getattr(sys.modules.get(str(module)), name, None) is thing else None


def name_of(thing: Any, label: str) -> str:
    """Return the importable name of a function, or else a name that only this process resolves: `python:<label>`.

    Initial weights are drawn by name, so the same function defined again (a notebook's cell run twice) keeps its name.
    """
    if (name := importable_name(thing)) is not None:
        return name
    for number in count(1):
        name = f"{LOCAL}{label}" if number == 1 else f"{LOCAL}{label}-{number}"
        if name not in _objects or _same(_objects[name], thing):
            _objects[name] = thing
            return name
    raise AssertionError("unreachable")


def _same(one: Any, other: Any) -> bool:
    """Return whether these are equal values, or functions of the same code and captured values."""
    if not (inspect.isfunction(one) and inspect.isfunction(other)):
        return one is other or (is_dataclass(one) and bool(one == other))
    captured = [[cell.cell_contents for cell in function.__closure__ or ()] for function in (one, other)]
    return (one.__code__, one.__defaults__, captured[0]) == (other.__code__, other.__defaults__, captured[1])


def local_object(name: str) -> Any:
    """Return the object that `name_of` registered under this name in this process."""
    if name not in _objects:
        raise FedfuseError(
            f"{name} is a Python object of the process that began this run, and no other process can import it: put it "
            "into a module and give its name, package.module:function"
        )
    return _objects[name]


def settings_of(function: Function) -> list[inspect.Parameter]:
    """Return the parameters that a file may set: keyword-only, with a default, or taking any number of values.

    The others are passed by the caller. Of a class, all parameters may be set.
    """
    parameters = inspect.signature(function).parameters.values()
    return [
        p
        for p in parameters
        if p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        or (p.kind is p.POSITIONAL_OR_KEYWORD and (p.default is not p.empty or isinstance(function, type)))
    ]


def default_of(function: Function, parameter: inspect.Parameter) -> Any:
    """Return the parameter's default, or `inspect.Parameter.empty`. Default factories of dataclasses are called."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return ()
    if is_dataclass(function):
        factories = {f.name: f.default_factory for f in fields(function) if f.default_factory is not MISSING}
        if parameter.name in factories:
            return factories[parameter.name]()
    return parameter.default


def hints_of(function: Function) -> dict[str, Any]:
    """Return the type of each parameter, including the metadata of `Annotated`."""
    return get_type_hints(function, include_extras=True)


def as_is(value: Any, hint: Any = None) -> Any:
    """Return the value unchanged."""
    return value


@cache
def schema(
    function: Function, file_type: Callable[[Any], Any] = as_is, file_value: Callable[[Any, Any], Any] = as_is
) -> type[BaseModel]:
    """Return a pydantic model of the function's settings. Unknown settings are forbidden.

    Where an argument has another type in a file (a part is a section there), `file_type` maps its annotation to that
    type, and `file_value` its default.
    """
    hints = hints_of(function)
    settings: dict[str, Any] = {}
    for p in settings_of(function):
        hint = hints.get(p.name, Any)
        hint = tuple[hint, ...] if p.kind is p.VAR_POSITIONAL else hint  # type: ignore[valid-type]
        default = default_of(function, p)
        kind = file_type(hint)
        if default is not None and NoneType in get_args(kind) and str not in get_args(kind):
            kind = Annotated[kind, BeforeValidator(_none_from_text)]
        settings[p.name] = (kind, ... if default is p.empty else file_value(default, hint))
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)
    return create_model(
        f"{function.__name__} settings", __config__=config, __validators__={"_only_numbers": ONLY_NUMBERS}, **settings
    )


def _refuse_booleans(cls: type[BaseModel], value: Any, info: ValidationInfo) -> Any:
    """Refuse true and false where a number is expected: Python takes them for 1 and 0."""
    kinds = _kinds(cls.model_fields[str(info.field_name)].annotation)
    if kinds & {int, float} and not kinds & {bool, Any} and _holds_boolean(value):
        raise ValueError("must be a number, not true or false")
    return value


def _kinds(hint: Any) -> set[Any]:
    inner = get_args(hint)
    return set().union(*map(_kinds, inner)) if inner else {hint} if isinstance(hint, Hashable) else set()


def _holds_boolean(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_boolean, value.values()))
    return isinstance(value, bool) or (isinstance(value, list | tuple) and any(map(_holds_boolean, value)))


# For the body of a pydantic model.
ONLY_NUMBERS: Any = field_validator("*", mode="before")(_refuse_booleans)


def _none_from_text(value: Any) -> Any:
    return None if value == NONE else value


def call(function: Function, settings: Mapping[str, Any]) -> Any:
    """Call the function with these settings."""
    variadic = [p.name for p in settings_of(function) if p.kind is p.VAR_POSITIONAL]
    values = [value for name in variadic for value in settings.get(name, ())]
    return function(*values, **{name: value for name, value in settings.items() if name not in variadic})


def summary(function: Function) -> str:
    """Return the first line of the function's docstring."""
    return (inspect.getdoc(function) or "").partition("\n")[0]
