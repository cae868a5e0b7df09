"""Show an algorithm as a tree of its parts, each with its settings, its file and its summary."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text
from rich.tree import Tree

from fedfuse import signature
from fedfuse.algorithm import Algorithm, SettingOf
from fedfuse.algorithms import ALGORITHMS
from fedfuse.config.named import ConfigError
from fedfuse.config.parts import PARTS, AlgorithmSection
from fedfuse.types import FedfuseError


def explain(name: str) -> RenderableType:
    """Describe an algorithm or a part by name: its summary, its settings with their defaults, and its parts."""
    matches = [_part(f"{kind} {name}", part) for kind, part in parts_called(name)]
    if matches and name not in ALGORITHMS:
        return Group(*matches)
    return _algorithm(name, *algorithm_called(name))


def parts_called(name: str) -> list[tuple[str, type[Any]]]:
    """Return the parts of this name, each with its kind: "median" is an aggregate and a target."""
    return [(protocol.__name__.lower(), known[name]) for protocol, known in PARTS.items() if name in known]


def algorithm_called(name: str) -> tuple[signature.Function, Algorithm]:
    """Return the function of this name, and the algorithm that it makes by default."""
    if name not in ALGORITHMS and ":" not in name:
        known = [*ALGORITHMS, *dict.fromkeys(key for parts in PARTS.values() for key in parts)]
        hint = signature.did_you_mean(name, known)
        raise FedfuseError(f"no algorithm or part is called {name!r}{hint} Known: {', '.join(known)}")
    section = AlgorithmSection(name=name)
    if problems := section.complete("algorithm"):
        raise ConfigError(problems)
    return section.function(), section.build()


def owner_of(function: signature.Function, setting: str) -> str | None:
    """Return the part that an algorithm passes this setting on to; None if the setting is its own."""
    marks = get_args(signature.hints_of(function).get(setting))[1:]
    return next((mark.part for mark in marks if isinstance(mark, SettingOf)), None)


def _part(label: str, part: type[Any]) -> RenderableType:
    first, _, rest = (inspect.getdoc(part) or "").partition("\n\n")
    text = _unwrap(first) + (f"\n\n{_unwrap(rest)}" if rest else "")
    return Group(Text(label, style="bold green"), Padding(Text(text), (0, 0, 1, 0)), *_settings(part))


def _algorithm(name: str, function: signature.Function, algorithm: Algorithm) -> RenderableType:
    paper = inspect.getdoc(inspect.getmodule(function)) or ""
    citation, _, description = "\n\n".join(map(_unwrap, paper.split("\n\n"))).partition("\n\n")
    return Group(
        Text(name, style="bold green"),
        Text(citation, style="dim"),
        Padding(Text(description), (1, 0)),
        *_settings(function),
        composition(algorithm),
    )


def _settings(function: signature.Function) -> list[Text]:
    """List the settings with their defaults. For a setting of a part, show which part and that part's value."""
    lines = Text()
    defaults = {p.name: signature.default_of(function, p) for p in signature.settings_of(function)}
    for name, default in defaults.items():
        owner = owner_of(function, name)
        lines.append(f"  {name}", style="cyan")
        if owner is not None:
            value = getattr(defaults.get(owner), name, None)
            lines.append(f" = {_value(value)}" if value is not None else "").append(f"  of the {owner}\n", style="dim")
        else:
            lines.append(f" = {_value(default)}\n")
    return [Text(f"settings ({_place(function)})", style="bold"), lines]


def _unwrap(paragraph: str) -> str:
    """Join a paragraph into one line, for the terminal to wrap. Keep a paragraph with indented lines as it is."""
    return paragraph if "\n " in paragraph else paragraph.replace("\n", " ")


def composition(algorithm: Algorithm) -> Tree:
    root = Tree(Text(f"{algorithm.name}", style="bold"), guide_style="dim")
    for field in fields(algorithm):
        value = getattr(algorithm, field.name)
        if field.name in ("name", "made_by") or value == field.default:
            continue
        if _is_part(value):
            _add_part(root, field.name, value)
        else:
            root.add(Text(f"{field.name}  ", style="cyan").append(_value(value), style="bold"))
    return root


def _add_part(tree: Tree, role: str, part: Any) -> None:
    if isinstance(part, tuple):
        for item in part:
            _add_part(tree, role, item)
        return
    branch = tree.add(_label(role, part))
    if is_dataclass(part):
        for field in fields(part):
            value = getattr(part, field.name)
            if _is_part(value):
                _add_part(branch, field.name, value)


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
    if isinstance(value, Algorithm):
        return value.name
    names = {part: name for known in PARTS.values() for name, part in known.items()}
    return repr(names.get(type(value), value))


def _place(thing: Any) -> str:
    """Return file and line, relative to the package's folder."""
    thing = inspect.unwrap(thing) if callable(thing) else thing
    try:
        file, line = inspect.getsourcefile(thing), inspect.getsourcelines(thing)[1]
    except (TypeError, OSError):
        return ""
    path = Path(file or "")
    root = Path(__file__).parent.parent
    return f"{path.relative_to(root) if path.is_relative_to(root) else path.name}:{line}"
