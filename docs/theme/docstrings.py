"""Docstrings describe arguments in lines of `name: what it is`. On a page these lines are a list."""

from __future__ import annotations

import re
from typing import Any

from griffe import Class, Extension, Function


class ArgumentList(Extension):
    """For every function and class of which mkdocstrings makes a page."""

    def on_function(self, *, func: Function, **kwargs: Any) -> None:
        _listed(func, [parameter.name for parameter in func.parameters])

    def on_class(self, *, cls: Class, **kwargs: Any) -> None:
        _listed(cls, [name for name, member in cls.members.items() if not member.is_function])


def _listed(thing: Function | Class, names: list[str]) -> None:
    if thing.docstring is None or not names:
        return
    line = re.compile(rf"^({'|'.join(map(re.escape, names))}): ", re.MULTILINE)
    first = line.search(thing.docstring.value)
    if first is None:
        return
    before, rest = thing.docstring.value[: first.start()], thing.docstring.value[first.start() :]
    thing.docstring.value = before.rstrip("\n") + "\n\n" + line.sub(r"- **\1**: ", rest)
