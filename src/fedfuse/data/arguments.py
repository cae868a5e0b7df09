"""Arguments that come from a file or a command line, checked against a function's own signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model

from fedfuse.types import FedfuseError


def checked(function: Callable[..., Any], given: Mapping[str, object], what: str) -> dict[str, Any]:
    """`given` as `function`'s keyword-only arguments, converted to their types; a mistake names `what`."""
    hints = get_type_hints(function)
    known = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    fields: dict[str, Any] = {p.name: (hints[p.name], ... if p.default is p.empty else p.default) for p in known}
    model = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
    try:
        values = model.model_validate(dict(given))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise FedfuseError(f"{what}: {wrong}. Its arguments: {', '.join(map(_signature, known)) or 'none'}") from error
    return {name: getattr(values, name) for name in given}


def _signature(parameter: inspect.Parameter) -> str:
    kind = parameter.annotation if isinstance(parameter.annotation, str) else ""
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{parameter.name}: {kind}{default}"
