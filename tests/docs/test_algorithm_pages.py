"""Each algorithm has a page: its settings are those of the signature, its commands can be run."""

from __future__ import annotations

import inspect
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import fedfuse
from fedfuse import signature
from fedfuse.algorithm import ClientModels, NoServerModel
from fedfuse.algorithms import ALGORITHMS
from fedfuse.algorithms.fedbe import DISTILLERS, POSTERIORS
from fedfuse.fusion import Distilled
from fedfuse.runs.compare import variants
from tests.docs.pages import ROOT, commands
from tests.docs.test_docs import one_line, part_of, stated

FOLDER = ROOT / "docs/algorithms"
HEADINGS = ["What it does", "When to use it", "Cost", "Settings", "The paper's values", "Deviations"]
HEADINGS += ["How to run it", "Composition"]
# The parts that an algorithm chooses itself where its argument is None.
OF_PRESET = {"posterior": POSTERIORS["paper"], "distiller": DISTILLERS["paper"]}


def page(name: str) -> Path:
    return FOLDER / f"{name}.md"


def sections(name: str) -> dict[str, str]:
    pieces = re.split(r"^## (.*)\n", page(name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def table(text: str) -> list[list[str]]:
    """The rows of a table, without its head. A bar that belongs to a cell is written \\|."""
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def defaults(name: str) -> dict[str, Any]:
    """The default of each setting. That of a setting which is passed on to a part is the default part's."""
    function = ALGORITHMS[name]
    own = {p.name: p.default for p in signature.settings_of(function)}
    parts = {setting: part for setting in own if (part := part_of(function, setting)) is not None}
    passed_on = {setting: getattr(own[part] or OF_PRESET[part], setting, None) for setting, part in parts.items()}
    return own | passed_on


def test_every_algorithm_has_a_page_and_every_page_an_algorithm() -> None:
    assert {file.stem for file in FOLDER.glob("*.md")} == {"index", *ALGORITHMS}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_page_has_all_headings_in_order(name: str) -> None:
    assert list(sections(name)) == HEADINGS


@pytest.mark.parametrize("name", ALGORITHMS)
def test_settings_are_those_of_the_signature(name: str) -> None:
    rows = table(sections(name)["Settings"])
    in_code = {setting: stated(default) for setting, default in defaults(name).items()}
    assert {setting.strip("`"): default for setting, default, _ in rows} == in_code
    assert all(meaning for *_, meaning in rows)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_values_beside_the_papers_are_the_defaults(name: str) -> None:
    """The first `setting = value` of a cell is our default; what follows an "or" or a semicolon is another choice."""
    in_code = defaults(name)
    for row in table(sections(name)["The paper's values"]):
        ours = re.split(r"; |, or | or ", row[2])[0]
        for setting, value in re.findall(r"`(\w+) = ([^`]*)`", ours):
            if in_code.get(setting) is not None:  # the page explains a setting that is not set by default
                assert value == one_line(in_code[setting]), f"{name}: {setting}"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_page_cites_what_the_source_cites(name: str) -> None:
    source = inspect.getmodule(ALGORITHMS[name])
    assert source is not None
    cited = set(re.findall(r"arXiv:(\d{4}\.\d{5})", source.__doc__ or ""))
    assert cited <= set(re.findall(r"arxiv\.org/abs/(\d{4}\.\d{5})", page(name).read_text(encoding="utf-8")))
    file = Path(str(source.__file__)).relative_to(ROOT)
    assert f"(../../{file})" in page(name).read_text(encoding="utf-8")


def algorithms_in(name: str) -> list[tuple[str, dict[str, str]]]:
    """Every `-a` of the page's commands, with the settings of its command."""
    algorithms: dict[str, dict[str, str]] = {}
    for words in commands(page(name)):
        options = list(pairwise(words))
        settings = dict(value.split("=", 1) for option, value in options if option == "--set")
        settings |= {"run.rounds": value for option, value in options if option == "-r"}  # noqa: B035  one at most
        algorithms |= {value: settings for option, value in options if option == "-a"}
    return list(algorithms.items())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_commands_of_the_page_are_sound(name: str) -> None:
    """Each can be run on the digits, as it is written; and the page runs its own algorithm."""
    assert any(text.partition("(")[0] == name for text, _ in algorithms_in(name))
    for text, settings in algorithms_in(name):
        numbers = {key: float(value) if "." in value else int(value) for key, value in settings.items()}
        for experiment in variants(fedfuse.load("digits", numbers), [text], [0]).values():
            fedfuse.check(experiment)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_compositions_of_the_page_are_sound(name: str) -> None:
    """Code with brackets in this section is an algorithm too."""
    for text in re.findall(r"`([a-z-]+\([^`]*\))`", sections(name)["Composition"]):
        rounds = 1 if text.startswith("one-shot") else 20
        for experiment in variants(fedfuse.load("digits", {"run.rounds": rounds}), [text], [0]).values():
            experiment.algorithm.build()


def test_the_choice_has_every_algorithm() -> None:
    text = (FOLDER / "index.md").read_text(encoding="utf-8")
    choose = table(text.partition("## Choose")[2].partition("In short")[0])
    rows = {re.findall(r"`(.*)`", row[0])[0]: row for row in choose}
    assert rows.keys() == ALGORITHMS.keys()
    for name, row in rows.items():
        algorithm = ALGORITHMS[name]()
        assert ("large" in row[2]) == (not isinstance(algorithm.models, ClientModels | NoServerModel)), name
        outputs = name in ("ds-fl", "decentralised-logits")
        assert row[1].startswith("yes") == (isinstance(algorithm.fuse, Distilled) or outputs), name
