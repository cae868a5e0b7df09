"""The scripts of `benchmarks/papers` at a tiny size: they end, and write what they say."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "benchmarks" / "papers"


def test_uploads_writes_its_results_and_picture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On the digits instead of CIFAR-10: each format is as much smaller as it should be."""
    monkeypatch.syspath_prepend(SCRIPTS)
    uploads = importlib.import_module("uploads")
    digits = {"data.source": "digits", "data.pool.kind": "split", "data.pool.size": 128,
              "run.fraction": 0.05, "run.workers": 1}  # fmt: skip
    uploads.main(["--seeds", "1", "--rounds", "1", "--epochs", "1", "--out", str(tmp_path)], digits)
    assert (tmp_path / "uploads.png").stat().st_size > 100
    sizes = json.loads((tmp_path / "uploads.json").read_text())["megabytes a client and round"]
    smaller = {name: sizes["float32"] / size for name, size in sizes.items()}
    assert smaller["bfloat16"] == pytest.approx(2, abs=0.1)
    assert 3.7 < smaller["int8"] < 4
    assert smaller["1bit"] > 16
