"""The papers' toy figures at a tiny size: they end, and write what they say. Their numbers are in the README there."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[2] / "benchmarks" / "papers"


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("toy")


def wrote(folder: Path, *names: str) -> bool:
    return all((folder / name).stat().st_size > 100 for name in names)


def test_toy_writes_its_table_and_picture(toy: ModuleType, tmp_path: Path) -> None:
    toy.main(["--seeds", "1", "--out", str(tmp_path)], toy.Scale(points=30, epochs=2, steps=5, pixels=20))
    assert wrote(tmp_path, "toy.png", "toy.svg")
    assert "FedDF" in (tmp_path / "toy.txt").read_text()


def test_toy_shows_what_the_paper_shows(toy: ModuleType) -> None:
    scores = [toy.scores(toy.make(seed, toy.Scale(epochs=20, steps=200), shared_start=False)) for seed in range(3)]
    mean = {name: sum(seed[name].accuracy for seed in scores) / 3 for name in scores[0]}
    assert max(mean["local model 1"], mean["local model 2"]) < 0.7  # two classes of three
    assert min(mean["ensemble"], mean["FedDF"]) > 0.9
    assert mean["FedDF"] > mean["average (FedAvg)"] + 0.05


def test_one_bit_writes_its_tables_and_picture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On the digits instead of CIFAR-10: one-bit nets and four formats run, each as much smaller as it should be."""
    monkeypatch.syspath_prepend(SCRIPTS)
    one_bit = importlib.import_module("one_bit")
    monkeypatch.setattr(one_bit, "ALPHAS", (1.0,))
    digits = {"data.source": "digits", "data.pool.kind": "split", "data.pool.size": 128,
              "run.fraction": 0.05, "run.workers": 1}  # fmt: skip
    one_bit.main(["--seeds", "1", "--rounds", "1", "--epochs", "1", "--steps", "1", "--out", str(tmp_path)], digits)
    assert wrote(tmp_path, "one_bit.png", "one_bit.svg", "one_bit.txt")
    text = (tmp_path / "one_bit.txt").read_text()
    assert "70.27" in text
    smaller = {name: float(line.split("│")[3]) for line in text.splitlines()
               for name in ("float32", "int8", "1bit", "one-bit net, FedDF, BN") if f" {name} " in line}  # fmt: skip
    assert smaller["float32"] == 1
    assert 3.7 < smaller["int8"] < 4
    assert smaller["1bit"] == smaller["one-bit net, FedDF, BN"] > 16
