"""The site builds, without a warning, and asks nobody for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("material")
pytest.importorskip("mkdocstrings")

from tests.docs.pages import PAGES, ROOT

# Whatever a page would load by itself. Links that a reader may follow are no such thing.
LOADED = re.compile(r'<(?:script|img|iframe|source)[^>]*\ssrc="([^"]*)"|<link[^>]*\shref="([^"]*)"|url\(([^)]*)\)')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    process = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert process.returncode == 0, process.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    ours = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in PAGES if "docs" in page.parts}
    assert not [page for page in ours if not (site / page).is_file()]


def test_what_is_linked_to_outside_is_there_too(site: Path) -> None:
    for page in ("CONTRIBUTING.html", "src/fedfuse/round.py.html", "src/fedfuse/data/index.html", "LICENSE.html"):
        assert (site / "repository" / page).is_file()
    assert (site / "repository/benchmarks/papers/pictures/text-ag-news.png").is_file()
    assert 'href="repository/src/fedfuse/round.py.html"' in (site / "index.html").read_text(encoding="utf-8")


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for file in [*site.rglob("*.html"), *site.rglob("theme/*.css")]:
        for link in LOADED.findall(file.read_text(encoding="utf-8")):
            assert not re.match(r"(https?:)?//", "".join(link).strip("'\"")), f"{file.name} loads {''.join(link)}"


def test_reference_has_every_public_name(site: Path) -> None:
    import fedfuse
    from fedfuse import algorithms, fusion, local, models

    text = "".join(page.read_text(encoding="utf-8") for page in (site / "reference").glob("*.html"))
    there = {name.rpartition(".")[2] for name in re.findall(r'<h\d id="(fedfuse\.[\w.]+)"', text)}
    for module in (fedfuse, fusion, local, algorithms, models):
        public = {name for name in module.__all__ if not name.isupper() or name in ("SGD", "SWA")}  # no constants
        modules = {name for name in public if isinstance(getattr(module, name), ModuleType)}
        assert not [name for name in modules if not (site / f"reference/{name}.html").is_file()]
        documented = public - modules - {"__version__"}
        assert not documented - there, f"{module.__name__}: {documented - there}"


def test_search_finds_pages_and_not_the_source(site: Path) -> None:
    index = (site / "search/search_index.json").read_text(encoding="utf-8")
    assert "guides/fuse.html" in index
    assert "repository/src/" not in index
