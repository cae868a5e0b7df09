"""The code of the documentation runs: every python block of every page, and the tutorial from its first command on."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fedfuse
from fedfuse.config.experiment import Experiment
from fedfuse.runs import compare, run
from fedfuse.runs.run import Run
from fedfuse.sweeps import search
from tests.command_line import CommandLine
from tests.docs.pages import PAGES, ROOT, all_blocks, blocks, commands_in, files, page_name
from tests.examples import test_examples
from tests.invariant import test_text_files

TUTORIAL, FUSE = ROOT / "docs/tutorial.md", ROOT / "docs/guides/fuse.md"  # these have tests of their own below
LEAST = {"run.rounds": 2, "run.workers": 1, "local.epochs": 1}

# Blocks that tests of their own run, and look at more closely than the tests here do: by page and by something in them.
ELSEWHERE: dict[tuple[str, str], Callable[..., None]] = {
    ("README.md", "fuse(forests"): test_examples.test_the_readme_shows_and_runs_fuse,
    ("README.md", "fedfuse.load_model"): test_examples.test_readme_python,
    ("docs/guides/own-data.md", "Tokenizer.from_file"): test_text_files.test_the_tokenizer_is_beside_the_model,
    ("CONTRIBUTING.md", "def rings("): test_examples.test_contributing_data,
    ("CONTRIBUTING.md", "def tinynet("): test_examples.test_contributing_model,
    ("CONTRIBUTING.md", "def damped("): test_examples.test_contributing_algorithm,
}

# What a page takes for granted: lines that are run before its first block.
BEFORE = {
    "docs/guides/own-algorithm.md": "from torch import nn\nfrom fedfuse.local import Local",
    "docs/guides/own-data.md": "import numpy as np\nSplit = tuple",
    "docs/guides/own-model.md": "import fedfuse\nfedfuse.run(fedfuse.load('digits'), out='runs/first')",
}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of its own, in which every run is cut to a few rounds of little work."""

    def cut(experiment: Experiment, *arguments: Any, **options: Any) -> Run:
        less = {key: value for key, value in LEAST.items() if key != "run.rounds" or experiment.run.rounds > value}
        fewer = {f"algorithm.{key}": 20 for key in ("steps",) if key in experiment.algorithm.settings}
        return whole(experiment.with_settings(less | fewer), *arguments, **options)

    whole = run.run
    for module in (run, compare, search):
        monkeypatch.setattr(module, "run", cut)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))  # examples/
    with torch.random.fork_rng():
        yield


def left(page: Path) -> list[str]:
    """The python blocks of a page that no test of its own runs."""
    own = [mark for name, mark in ELSEWHERE if name == page_name(page)]
    return [block for block in blocks(page, "python") if not any(mark in block for mark in own)]


def run_block(block: str, page: Path, names: dict[str, Any]) -> str:
    """What it prints. It does not inherit this file's `from __future__`, and a sweep in it has two trials."""
    out, block = io.StringIO(), re.sub(r"\btrials=\d+", "trials=2", block)
    with contextlib.redirect_stdout(out):
        exec(compile(block, page_name(page), "exec", dont_inherit=True), names)
    return out.getvalue()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("page", [p for p in PAGES if left(p) and p not in (TUTORIAL, FUSE)], ids=page_name)
def test_python_runs(page: Path) -> None:
    """All blocks of a page in order, as one reader would run them."""
    names: dict[str, Any] = {"__name__": "a_documented_example"}
    run_block(BEFORE.get(page_name(page), ""), page, names)
    for block in left(page):
        run_block(block, page, names)


@pytest.mark.parametrize(("name", "mark"), ELSEWHERE, ids=str)
def test_what_runs_elsewhere_is_there(name: str, mark: str) -> None:
    assert sum(mark in block for block in blocks(ROOT / name, "python")) == 1


def test_no_python_hides_in_another_kind_of_block() -> None:
    """A block that is not marked `python` is not run."""
    for page in PAGES:
        for language, text in all_blocks(page):
            assert language, f"{page_name(page)} has a block without a language: {text[:40]!r}"
            assert language in {"python", "console", "toml", "text", "sh"}, f"{page_name(page)}: {language}"


@pytest.mark.usefixtures("small")
def test_the_tutorial_runs(cli: CommandLine) -> None:
    """Its commands, files and code, in their order, in one folder."""
    names: dict[str, Any] = {"__name__": "a_documented_example"}
    for name, text in files(TUTORIAL).items():
        Path(name).write_text(text, encoding="utf-8")
    count = 0
    for language, text in all_blocks(TUTORIAL):
        if language == "python":
            run_block(text, TUTORIAL, names)
        for words in commands_in(text) if language == "console" else ():
            result = cli.here(*words)
            assert result.code == 0, f"{' '.join(words)}: {result.text}"
            count += 1
    assert count >= 6
    assert set(names) >= {"loaded", "fused"}


@pytest.mark.usefixtures("small")
def test_the_fuse_guide_shows_what_it_prints() -> None:
    """The same words; numbers as near as another machine's may be."""
    names: dict[str, Any] = {"__name__": "a_documented_example"}
    shown = all_blocks(FUSE)
    for (language, text), after in zip(shown, [*shown[1:], None], strict=True):
        if language != "python":
            continue
        printed = run_block(text, FUSE, names)
        if printed:
            assert after is not None
            assert after.language == "text", f"it prints {printed!r}"
            assert _words(printed) == _words(after.text)
            assert _numbers(printed) == pytest.approx(_numbers(after.text), abs=0.1)


NUMBER = r"\d+(?:\.\d+)?"


def _words(text: str) -> list[str]:
    return [line.rstrip() for line in re.sub(NUMBER, "0", text).splitlines()]


def _numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(NUMBER, text)]


def test_the_tutorial_loads_what_it_trains() -> None:
    """Each run directory that its code reads is one that its commands write."""
    code = "\n".join(blocks(TUTORIAL, "python"))
    made = {
        words[words.index("--out") + 1]
        for b in blocks(TUTORIAL, "console")
        for words in commands_in(b)
        if "--out" in words
    }
    assert set(re.findall(r'"(runs/\w+)/', code)) <= made
    assert fedfuse.load("digits").models.clients == "mlp:64-32"
