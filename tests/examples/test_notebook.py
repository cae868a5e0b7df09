"""The notebook in examples/ runs, cell after cell, and shows what it says it shows."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples/notebook.ipynb"
NUMBER = r"\d+(?:\.\d+)?"


def cells() -> list[dict[str, Any]]:
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def run_cell(source: str, names: dict[str, Any]) -> tuple[str, str | None]:
    """Return what the cell prints, and the text of its last expression, as a notebook does."""
    tree, printed, last = ast.parse(source), io.StringIO(), None
    value = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "a cell", "exec", dont_inherit=True), names)
        if isinstance(value, ast.Expr):
            result = eval(compile(ast.Expression(value.value), "a cell", "eval", dont_inherit=True), names)
            last = None if result is None or source.rstrip().endswith(";") else repr(result)
    return printed.getvalue(), last


def words(text: str | None) -> list[str]:
    return re.sub(NUMBER, "0", text or "").split()


def numbers(text: str | None) -> list[float]:
    return [float(number) for number in re.findall(NUMBER, text or "")]


def test_the_notebook_runs_and_shows_its_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same words; numbers as near as another machine's may be."""
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(tmp_path)  # the notebook leaves it, and the test comes back
    monkeypatch.setattr(os, "chdir", lambda folder: None)
    names: dict[str, Any] = {"__name__": "a_notebook"}
    with torch.random.fork_rng():
        for cell in cells():
            printed, last = run_cell("".join(cell["source"]), names)
            stored = [output for output in cell["outputs"] if output["output_type"] == "execute_result"]
            texts = ["".join(output["data"]["text/plain"]) for output in stored]
            assert words(last) == words(texts[0] if texts else None)
            assert numbers(last) == pytest.approx(numbers(texts[0] if texts else None), abs=0.1)
            lines = ["".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream"]
            assert words(printed) == words("".join(lines))
    _, feddf = names["rows"]
    assert feddf.final[0] == names["rows"].to_pandas().query("algorithm == @feddf.algorithm").test_accuracy.iloc[-1]


def test_stored_outputs_have_tables_a_curve_and_a_picture_and_no_place_of_a_machine() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    kinds = {kind for cell in cells() for output in cell["outputs"] for kind in output.get("data", {})}
    assert kinds == {"text/plain", "text/html", "image/png"}
    assert "<svg" in text
    assert not re.search(r"/(tmp|home|root|work|Users)/", text)
    assert NOTEBOOK.stat().st_size < 100_000
