"""Each algorithm has a page: its settings are those of the signature, its commands can be run."""

from __future__ import annotations

import inspect
import re
from itertools import pairwise
from pathlib import Path

import pytest

import fedfuse
from fedfuse import signature
from fedfuse.algorithms import ALGORITHMS
from fedfuse.fusion import Distilled
from fedfuse.runs.compare import variants
from tests.docs.pages import ROOT, commands
from tests.docs.test_docs import one_line, stated

FOLDER = ROOT / "docs/algorithms"
PARTS = ["What it does", "When to use it", "Cost", "Settings", "The paper's words", "Deviations"]
PARTS += ["How to run it", "Composition"]


def page(name: str) -> Path:
    return FOLDER / f"{name}.md"


def sections(name: str) -> dict[str, str]:
    found = re.split(r"^## (.*)\n", page(name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def table(text: str) -> list[list[str]]:
    """The rows of a table, without its head. A bar that belongs to a cell is written \\|."""
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_every_algorithm_has_a_page_and_every_page_an_algorithm() -> None:
    assert {file.stem for file in FOLDER.glob("*.md")} == {"index", *ALGORITHMS}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_page_has_all_parts_in_order(name: str) -> None:
    assert list(sections(name)) == PARTS


@pytest.mark.parametrize("name", ALGORITHMS)
def test_settings_are_those_of_the_signature(name: str) -> None:
    rows = table(sections(name)["Settings"])
    in_code = {p.name: stated(p.default) for p in signature.settings_of(ALGORITHMS[name])}
    assert {setting.strip("`"): default for setting, default, _ in rows} == in_code
    assert all(meaning for *_, meaning in rows)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_values_beside_the_papers_are_the_defaults(name: str) -> None:
    """The first `setting = value` of a cell is our default; what follows an "or" or a semicolon is another choice."""
    defaults = {p.name: p.default for p in signature.settings_of(ALGORITHMS[name])}
    for row in table(sections(name)["The paper's words"]):
        said = re.split(r"; |, or | or ", row[2])[0]
        for setting, value in re.findall(r"`(\w+) = ([^`]*)`", said):
            if defaults.get(setting) is not None:  # what is not set by default has its value in words
                assert value == one_line(defaults[setting]), f"{name}: {setting}"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_page_cites_what_the_source_cites(name: str) -> None:
    source = inspect.getmodule(ALGORITHMS[name])
    assert source is not None
    cited = set(re.findall(r"arXiv:(\d{4}\.\d{5})", source.__doc__ or ""))
    assert cited <= set(re.findall(r"arxiv\.org/abs/(\d{4}\.\d{5})", page(name).read_text(encoding="utf-8")))
    assert f"algorithms/{Path(str(source.__file__)).name}" in page(name).read_text(encoding="utf-8")


def said_in(name: str) -> list[tuple[str, dict[str, str]]]:
    """Every `-a` of the page's commands, with the settings of its command."""
    found: dict[str, dict[str, str]] = {}
    for words in commands(page(name)):
        options = list(pairwise(words))
        settings = dict(value.split("=", 1) for option, value in options if option == "--set")
        settings |= {"run.rounds": value for option, value in options if option == "-r"}  # noqa: B035  one at most
        found |= {value: settings for option, value in options if option == "-a"}
    return list(found.items())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_commands_of_the_page_are_sound(name: str) -> None:
    """Each can be run on the digits, as it is written; and the page runs its own algorithm."""
    assert any(said.partition("(")[0] == name for said, _ in said_in(name))
    for said, settings in said_in(name):
        numbers = {key: float(value) if "." in value else int(value) for key, value in settings.items()}
        for experiment in variants(fedfuse.load("digits", numbers), [said], [0]).values():
            fedfuse.check(experiment)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_compositions_of_the_page_are_sound(name: str) -> None:
    """What is written in code with brackets, after the colon of a hint, is an algorithm too."""
    text = sections(name)["Composition"]
    for said in re.findall(r"`([a-z-]+\([^`]*\))`", text):
        rounds = 1 if said.startswith("one-shot") else 20
        for experiment in variants(fedfuse.load("digits", {"run.rounds": rounds}), [said], [0]).values():
            experiment.algorithm.build()


def test_the_choice_has_every_algorithm() -> None:
    text = (FOLDER / "index.md").read_text(encoding="utf-8")
    choose = table(text.partition("## Choose")[2].partition("In short")[0])
    rows = {re.findall(r"`(.*)`", row[0])[0]: row for row in choose}
    assert rows.keys() == ALGORITHMS.keys()
    for name, row in rows.items():
        made = ALGORITHMS[name]()
        assert ("large" in row[2]) == made.large_server, name
        assert row[1].startswith("yes") == (isinstance(made.fuse, Distilled) or name == "ds-fl"), name
