"""What an algorithm is made of, as a tree: each part with its settings, its file and what it does."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text
from rich.tree import Tree

from fedfuse import signature
from fedfuse.algorithm import Algorithm


def explain(name: str, function: signature.Function, algorithm: Algorithm) -> RenderableType:
    """The paper's citation and box, the settings with their defaults, and the composition."""
    paper = inspect.getdoc(inspect.getmodule(function)) or ""
    citation, _, box = "\n\n".join(map(_unwrapped, paper.split("\n\n"))).partition("\n\n")
    settings = Text()
    for parameter in signature.settings_of(function):
        settings.append(f"  {parameter.name}", style="cyan").append(f" = {_value(parameter.default)}\n")
    return Group(
        Text(name, style="bold green"),
        Text(citation, style="dim"),
        Padding(Text(box), (1, 0)),
        Text(f"settings ({_place(function)})", style="bold"),
        settings,
        composition(algorithm),
    )


def _unwrapped(paragraph: str) -> str:
    """A paragraph as one line, for the terminal to wrap. One with indented lines is a box, and keeps them."""
    return paragraph if "\n " in paragraph else paragraph.replace("\n", " ")


def composition(algorithm: Algorithm) -> Tree:
    root = Tree(Text(f"{algorithm.name}", style="bold"), guide_style="dim")
    for field in fields(algorithm):
        value = getattr(algorithm, field.name)
        if field.name == "name" or value == field.default:
            continue
        if _is_part(value):
            _grow(root, field.name, value)
        else:
            root.add(Text(f"{field.name}  ", style="cyan").append(_value(value), style="bold"))
    return root


def _grow(tree: Tree, role: str, part: Any) -> None:
    if isinstance(part, tuple):
        for item in part:
            _grow(tree, role, item)
        return
    branch = tree.add(_label(role, part))
    if is_dataclass(part):
        for field in fields(part):
            value = getattr(part, field.name)
            if _is_part(value):
                _grow(branch, field.name, value)


def _label(role: str, part: Any) -> Text:
    label = Text(f"{role}  ", style="cyan")
    label.append(type(part).__name__ if is_dataclass(part) else getattr(part, "__name__", repr(part)), style="bold")
    label.append(f"({', '.join(_plain_settings(part))})  ", style="default")
    label.append(_place(type(part) if is_dataclass(part) else part), style="dim")
    label.append(f"\n{signature.summary(type(part) if is_dataclass(part) else part)}", style="italic")
    return label


def _plain_settings(part: Any) -> Iterator[str]:
    if is_dataclass(part):
        for field in fields(part):
            value = getattr(part, field.name)
            if not _is_part(value):
                yield f"{field.name}={_value(value)}"


def _is_part(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(_is_part(item) for item in value)
    return is_dataclass(value) or inspect.isfunction(value)


def _value(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return "(required)"
    return value.name if isinstance(value, Algorithm) else repr(value)


def _place(thing: Any) -> str:
    """File and line, from the package's folder on."""
    try:
        file, line = inspect.getsourcefile(thing), inspect.getsourcelines(thing)[1]
    except (TypeError, OSError):
        return ""
    path = Path(file or "")
    root = Path(__file__).parent.parent
    return f"{path.relative_to(root) if path.is_relative_to(root) else path.name}:{line}"
