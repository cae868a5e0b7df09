"""Words that a shell completes. They are read from the package's files, since importing torch would take seconds."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parent.parent
NOT_ALGORITHMS = ("__init__", "__pycache__", "settings")


def experiments(incomplete: str) -> list[str]:
    """Return the built-in experiments, and the TOML files and folders that begin with these letters."""
    built_in = sorted(file.stem for file in (PACKAGE / "experiments").glob("*.toml"))
    folder = incomplete[: incomplete.rfind("/") + 1]  # as it was typed, so that words begin with it
    try:
        here = sorted(Path(folder or ".").iterdir())
    except OSError:
        here = []
    files = [f"{folder}{path.name}" + "/" * path.is_dir() for path in here if path.is_dir() or path.suffix == ".toml"]
    return [word for word in (*built_in, *files) if word.startswith(incomplete)]


def algorithms(incomplete: str) -> list[str]:
    """Return the algorithms that begin with these letters."""
    names = {file.stem for file in (PACKAGE / "algorithms").iterdir()}.difference(NOT_ALGORITHMS)
    return sorted(word for name in names if (word := name.replace("_", "-")).startswith(incomplete))
