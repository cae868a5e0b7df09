"""Imports point one way: a room imports rooms of layers below its own. What is only imported for types counts too."""

import ast
from pathlib import Path

import pytest

import fedfuse

PACKAGE = Path(fedfuse.__file__).parent
LAYERS = """
errors
types
bounds codec compute dotted facts files notebook packing rng select signature tree
local_settings models
predict
data
context evaluate
algorithm
fusion local
algorithms
engines records
discrepancy safeguard tracking vet
config round
runs
drafts sweeps
export reports terminal testing
in_hand
papers
flower
commands
__init__ cli
"""
LAYER = {room: number for number, rooms in enumerate(LAYERS.split("\n")) for room in rooms.split()}


def rooms_imported_by(file: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports name the package"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        rooms |= {name.split(".")[1] for name in names if name.startswith("fedfuse.")}
    return rooms


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda f: str(f.relative_to(PACKAGE)))
def test_a_room_imports_from_below_only(file: Path) -> None:
    own = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    above = [room for room in rooms_imported_by(file) - {own} if LAYER[room] >= LAYER[own]]
    assert not above, f"{own} imports {above}, which {'is' if len(above) == 1 else 'are'} not below it"
