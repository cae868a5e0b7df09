"""The documentation does not rot: commands parse, keys and defaults are those of the code, links lead somewhere."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import click
import pytest
import tomli_w
import typer
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from fedfuse import signature
from fedfuse.algorithm import SettingOf
from fedfuse.algorithms import ALGORITHMS
from fedfuse.commands.app import app
from fedfuse.config.experiment import Experiment, builtin
from fedfuse.config.parts import PARTS, AlgorithmSection
from fedfuse.config.sections import (
    DataSection,
    ModelsSection,
    PartitionSection,
    PoolSection,
    RunSection,
)
from fedfuse.data.partition import SCHEMES
from fedfuse.data.pool import POOLS
from fedfuse.data.sources import SOURCES
from fedfuse.data.sources.hub import files_or_hub
from fedfuse.local_settings import LocalSettings
from tests.docs.pages import PAGES, ROOT, blocks, commands, files, page_name

GUIDE = ROOT / "docs/guides/experiments.md"


def all_commands() -> list[Any]:
    return [
        pytest.param(page, words, id=f"{page_name(page)}: {' '.join(words)}")
        for page in PAGES
        for words in commands(page)
    ]


def test_there_are_commands_to_check() -> None:
    assert len(all_commands()) >= 10


@pytest.mark.parametrize(("page", "words"), all_commands())
def test_commands_parse(page: Path, words: list[str]) -> None:
    group = typer.main.get_command(app)
    context = click.Context(group, info_name="fedfuse")
    name, command, rest = group.resolve_command(context, list(words))  # type: ignore[attr-defined]
    command.make_context(name, rest, parent=context)  # an unknown option or a missing argument raises


@pytest.mark.parametrize(("page", "words"), all_commands())
def test_experiments_in_commands_exist(page: Path, words: list[str]) -> None:
    if words[0] in ("run", "compare", "sweep", "check", "partition"):
        assert words[1] in builtin() or words[1] in files(page) or (ROOT / words[1]).is_file()


@pytest.mark.parametrize(
    ("page", "block"),
    [
        pytest.param(p, b, id=f"{page_name(p)}-{i}")
        for p in PAGES
        for i, b in enumerate(blocks(p, "toml"))
    ],
)  # fmt: skip
def test_toml_is_an_experiment(page: Path, block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sections that a block leaves out are those of the digits."""
    monkeypatch.chdir(ROOT)
    digits = tomllib.loads(builtin()["digits"].read_text(encoding="utf-8"))
    Experiment(**(digits | tomllib.loads(block)))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_python_compiles(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(block, page_name(page), "exec")


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_relative_links_resolve(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page_name(page)} links to {target}"
        if anchor:
            assert anchor in anchors(there), f"{page_name(page)} links to {target}"


# The experiments guide against the code.


def section(heading: str) -> str:
    """The text under a heading of the guide, up to the next heading."""
    match = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", GUIDE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert match is not None, f"the guide has no section {heading}"
    return match[1]


def rows(heading: str, first: str) -> list[list[str]]:
    """The rows of the table whose first column is called `first`."""
    lines = section(heading).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |"))
    table = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return table


def toml_value(value: Any) -> str:
    return tomli_w.dumps({"v": value}).removeprefix("v = ").strip()


def one_line(value: Any) -> str:
    """As TOML: arrays on one line, a part by its name and the settings that differ from its own defaults."""
    if is_dataclass(value):
        (name,) = (name for known in PARTS.values() for name, part in known.items() if type(value) is part)
        changed = [f for f in fields(value) if getattr(value, f.name) != f.default]
        settings = "".join(f", {f.name} = {one_line(getattr(value, f.name))}" for f in changed)
        return f'{{name = "{name}"{settings}}}' if settings else f'"{name}"'
    return f"[{', '.join(one_line(v) for v in value)}]" if isinstance(value, tuple | list) else toml_value(value)


def stated(default: Any) -> str:
    """A default as the guide writes it."""
    if default is PydanticUndefined or default is inspect.Parameter.empty:
        return "required"
    if isinstance(default, BaseModel):
        return "section"
    return "not set" if default is None else f"`{one_line(default)}`"


@pytest.mark.parametrize(
    ("heading", "model"),
    [
        ("The top", Experiment),
        ("`[data]`", DataSection),
        ("`[data.pool]`", PoolSection),
        ("`[partition]`", PartitionSection),
        ("`[models]`", ModelsSection),
        ("`[local]`", LocalSettings),
        ("`[algorithm]`", AlgorithmSection),
        ("`[run]`", RunSection),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_guide_has_the_keys_of_each_section(heading: str, model: type[BaseModel]) -> None:
    in_code = {f.alias or name: stated(f.default) for name, f in model.model_fields.items()}
    in_guide = {row[0].strip("`"): row[1] for row in rows(heading, "key")}
    assert in_guide == in_code


def part_of(function: Callable[..., Any], setting: str) -> str | None:
    """The part that an algorithm passes this setting on to; None if the setting is the algorithm's own."""
    marks = get_args(signature.hints_of(function).get(setting))[1:]
    return next((mark.part for mark in marks if isinstance(mark, SettingOf)), None)


def in_signature(function: Callable[..., Any]) -> str:
    """A function's own settings as the guide writes them."""

    def one(p: inspect.Parameter) -> str:
        if p.default is p.empty:
            return f"`{p.name}` (required)"
        return f"`{p.name}`" if p.default is None else f"`{p.name} = {one_line(p.default)}`"

    own = [p for p in signature.settings_of(function) if part_of(function, p.name) is None]
    return ", ".join(map(one, own)) or "none"


def of_parts(function: Callable[..., Any]) -> str:
    """The settings that an algorithm passes on to its parts, as the guide writes them."""
    by_part: dict[str, list[str]] = {}
    for p in signature.settings_of(function):
        if part := part_of(function, p.name):
            by_part.setdefault(part, []).append(f"`{p.name}`")
    return "; ".join(f"{part}: {', '.join(names)}" for part, names in by_part.items()) or "none"


@pytest.mark.parametrize(
    ("heading", "first", "catalogue"),
    [
        ("`[data]`", "source", {**SOURCES, "hub id, folder or file": files_or_hub}),
        ("`[data.pool]`", "pool", POOLS),
        ("`[partition]`", "scheme", SCHEMES),
        ("`[algorithm]`", "algorithm", ALGORITHMS),
    ],
    ids=["sources", "pools", "partitions", "algorithms"],
)
def test_guide_has_the_settings_of_each_function(
    heading: str, first: str, catalogue: Mapping[str, Callable[..., Any]]
) -> None:
    in_guide = {row[0].strip("`"): row[1] for row in rows(heading, first)}
    assert in_guide == {name: in_signature(function) for name, function in catalogue.items()}


def test_guide_has_the_settings_that_go_to_parts() -> None:
    in_guide = {row[0].strip("`"): row[2] for row in rows("`[algorithm]`", "algorithm")}
    assert in_guide == {name: of_parts(function) for name, function in ALGORITHMS.items()}


@pytest.mark.parametrize("protocol", PARTS, ids=lambda protocol: str(protocol.__name__))
def test_guide_has_every_part(protocol: Any) -> None:
    kind = protocol.__name__.lower()
    in_guide = {row[1].strip("`"): row[2:4] for row in rows("Parts", "kind") if row[0] == kind}
    assert in_guide == {name: [f"`{part.__name__}`", settings_of_part(part)] for name, part in PARTS[protocol].items()}


def settings_of_part(part: type[Any]) -> str:
    """A part's settings with its own defaults, as the guide writes them."""

    def one(p: inspect.Parameter) -> str:
        default = signature.default_of(part, p)
        if default is p.empty:
            return f"`{p.name}` (required)"
        return f"`{p.name}`" if default is None else f"`{p.name} = {one_line(default)}`"

    return ", ".join(map(one, signature.settings_of(part))) or "none"


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150
