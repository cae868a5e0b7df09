"""The wheel: what is in it, and that an environment with it alone runs an experiment from another folder."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.command_line import ROOT, environment

ENOUGH = 900  # seconds, on however busy a machine

setuptools = pytest.importorskip("setuptools", minversion="77", reason="wheels are built by setuptools 77 or newer")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is written to the source."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--wheel-dir", str(folder / "dist"), str(folder)], check=True, timeout=ENOUGH)
    (file,) = (folder / "dist").iterdir()
    return file


def version() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def test_everything_that_is_needed_is_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        facts = Parser().parsestr(archive.read(f"fedfuse-{version()}.dist-info/METADATA").decode())
    source = ROOT / "src"
    ours = {str(file.relative_to(source)) for file in (source / "fedfuse").rglob("*") if file.is_file()}
    wanted = {name for name in ours if "__pycache__" not in name}
    assert {name for name in wanted if name.endswith(("py.typed", ".toml", ".css", ".js", ".html"))}
    assert wanted <= names
    assert f"fedfuse-{version()}.dist-info/licenses/LICENSE" in names
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "docs"))]
    assert (facts["Version"], facts["License-Expression"]) == (version(), "Apache-2.0")
    assert any(line.startswith("Development Status :: ") for line in facts.get_all("Classifier", []))


def test_the_version_is_stated_in_one_place_and_cited_alike() -> None:
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited is not None
    assert cited[1] == version()
    stated = re.compile(rf'version(?:__)? *= *"{re.escape(version())}"')
    assert not [file for file in (ROOT / "src").rglob("*.py") if stated.search(file.read_text(encoding="utf-8"))]


def test_a_fresh_environment_runs_an_experiment(wheel: Path, tmp_path: Path) -> None:
    """The packages that fedfuse needs are those of this environment; fedfuse itself comes from the wheel alone."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env/bin/python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True, timeout=ENOUGH)
    (packages,) = (tmp_path / "env/lib").glob("python*/site-packages")
    # A path file in a path file is not read, so the editable fedfuse of this environment stays out.
    (packages / "packages.pth").write_text(sysconfig.get_path("purelib"))
    command = [str(tmp_path / "env/bin/fedfuse"), "run", "digits", "-r", "1", "--workers", "1", "--out", "run"]
    process = subprocess.run(
        [*command, "--set", "local.epochs=1"],
        cwd=tmp_path,
        env={**environment(None), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=ENOUGH,
    )
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "run/report.html").is_file()
    written = tomllib.loads((tmp_path / "run/experiment.toml").read_text(encoding="utf-8"))
    assert written["provenance"]["fedfuse"] == version()
    where = subprocess.run(
        [str(python), "-c", "import importlib.util as u; print(u.find_spec('fedfuse').origin)"],
        cwd=tmp_path, env={**environment(None), "PYTHONPATH": ""}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(where.stdout.strip()).is_relative_to(tmp_path / "env")
