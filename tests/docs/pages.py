"""The pages of the documentation, and the code on them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


class Block(NamedTuple):
    language: str
    text: str


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def all_blocks(page: Path) -> list[Block]:
    """Every block of code on the page, in order."""
    text = page.read_text(encoding="utf-8")
    return [Block(*match) for match in re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)]


def blocks(page: Path, language: str) -> list[str]:
    return [block.text for block in all_blocks(page) if block.language == language]


def files(page: Path) -> dict[str, str]:
    """The TOML blocks that begin with their file's name: `# mine.toml`."""
    named = ((re.match(r"# (\S+\.toml)\n", text), text) for text in blocks(page, "toml"))
    return {match[1]: text for match, text in named if match}


def commands_in(block: str) -> Iterator[list[str]]:
    """The arguments of every `fedfuse` line of a console block."""
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        if words and words[0] == "fedfuse":
            yield words[1:]


def commands(page: Path) -> Iterator[list[str]]:
    for block in blocks(page, "console"):
        yield from commands_in(block)
