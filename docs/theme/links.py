"""Links that leave docs/ work on the site too: what they lead to becomes a page of it.

Pages link to the source, to CONTRIBUTING and so on by relative paths, which whoever reads the repository can follow.
For the site, each file that is reached in this way is added under `repository/`: Markdown as it is, a folder as a
list, a picture as a picture, a notebook with its outputs, anything else as a page that shows it. Links are then turned
to these pages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from os.path import relpath
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel

REPOSITORY = "repository"
PICTURES = {".png", ".svg"}
ALONE = {"index.md", "tutorial.md"}  # they have no others beside them in the navigation
LANGUAGES = {".py": "python", ".toml": "toml", ".cff": "yaml", ".yml": "yaml"}
FENCE = re.compile(r"^(`{3,}).*?^\1`*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)\s#]+)")  # relative ones, without their anchor
SKIP = {"__pycache__", "py.typed"}
# The search is for the documentation; whoever wants the source comes by a link.
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is linked to from outside docs/, and what that links to in turn."""
    root, docs = _places(config)
    seen: set[Path] = set()
    waiting = [path for page in docs.rglob("*.md") for path in _outside(page.parent, page.read_text("utf-8"), docs)]
    while waiting:
        path = waiting.pop()
        if path in seen or not path.exists():  # mkdocs itself complains about a dead link
            continue
        seen.add(path)
        where = _site_path(path, root, docs)
        if path.suffix in PICTURES:
            files.append(File.generated(config, where, abs_src_path=str(path)))
            continue
        text = _page(path, root)
        files.append(File.generated(config, where, content=text, inclusion=InclusionLevel.NOT_IN_NAV))
        waiting += _outside(path if path.is_dir() else path.parent, text, docs)
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Turn links that leave docs/, and all of a page from outside it, to where their targets are on the site."""
    root, docs = _places(config)
    here = page.file.src_uri
    if here in ALONE:
        page.meta["hide"] = ["navigation"]
    ours = not here.startswith(f"{REPOSITORY}/")
    base = (docs / here if ours else root / here.removeprefix(f"{REPOSITORY}/")).parent

    def turned(link: re.Match[str]) -> str:
        path = _resolved(base, link[0])
        if ours and path.is_relative_to(docs):
            return link[0]
        return relpath(_site_path(path, root, docs), Path(here).parent)

    return "".join(part if code else LINK.sub(turned, part) for part, code in _parts(markdown))


def _places(config: MkDocsConfig) -> tuple[Path, Path]:
    return Path(config.config_file_path).resolve().parent, Path(config.docs_dir).resolve()


def _resolved(base: Path, link: str) -> Path:
    return (base / unquote(link)).resolve()


def _parts(markdown: str) -> Iterator[tuple[str, bool]]:
    """The text in pieces, each with whether it is a block of code."""
    end = 0
    for fence in FENCE.finditer(markdown):
        yield markdown[end : fence.start()], False
        yield fence[0], True
        end = fence.end()
    yield markdown[end:], False


def _outside(base: Path, markdown: str, docs: Path) -> list[Path]:
    links = (link[0] for part, code in _parts(markdown) if not code for link in LINK.finditer(part))
    return [path for path in (_resolved(base, link) for link in links) if not path.is_relative_to(docs)]


def _site_path(path: Path, root: Path, docs: Path) -> str:
    """Where a file of the repository is on the site, as a path of its source."""
    if path.is_relative_to(docs):
        return path.relative_to(docs).as_posix()
    where = f"{REPOSITORY}/{path.relative_to(root).as_posix()}"
    if path.is_dir():
        return f"{where}/index.md"
    return where if path.suffix in {".md", *PICTURES} else f"{where}.md"


def _page(path: Path, root: Path) -> str:
    name = path.relative_to(root).as_posix()
    if path.is_dir():
        entries = sorted(p.name for p in path.iterdir() if p.name not in SKIP)
        return f"{UNSEARCHED}# {name}/\n\n" + "".join(f"- [`{entry}`]({entry})\n" for entry in entries)
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    if path.suffix == ".ipynb":
        return UNSEARCHED + "\n\n".join(map(_cell, json.loads(text)["cells"])) + "\n"
    language = LANGUAGES.get(path.suffix, "text")
    return f'{UNSEARCHED}# {name}\n\n`````{language} linenums="1"\n{text}`````\n'


def _cell(cell: dict[str, Any]) -> str:
    """A cell of a notebook as Markdown: its text, or its code and what that shows."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    shown = [_output(output.get("data", {"text/plain": output.get("text", "")})) for output in cell["outputs"]]
    return "\n\n".join([f"`````python\n{source}\n`````", *shown])


def _output(data: dict[str, Any]) -> str:
    if "image/png" in data:
        return f'<img alt="" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    if "text/html" in data:
        lines = "".join(data["text/html"]).splitlines()
        return f"<div>{''.join(line.strip() for line in lines)}</div>"  # Markdown would end it at an empty line
    return f"`````text\n{''.join(data['text/plain']).rstrip()}\n`````"
