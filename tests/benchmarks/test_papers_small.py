"""The papers' toy figures at a tiny size: they end, and write what they say. Their numbers are in the README there."""

from __future__ import annotations

import csv
import importlib
from pathlib import Path
from types import ModuleType

import pytest
import torch

SCRIPTS = Path(__file__).parents[2] / "benchmarks" / "papers"


@pytest.fixture
def swiss_roll(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("swiss_roll")


def wrote(folder: Path, *names: str) -> bool:
    return all((folder / name).stat().st_size > 100 for name in names)


def test_swiss_roll_writes_its_table_and_picture(swiss_roll: ModuleType, tmp_path: Path) -> None:
    tiny = swiss_roll.Scale(points=300, hidden=8, rounds=2, sides=3)
    swiss_roll.main(["--seeds", "2", "--out", str(tmp_path)], tiny)
    assert wrote(tmp_path, "swiss_roll.png", "swiss_roll.svg", "swiss_roll.txt")
    rows = list(csv.DictReader((tmp_path / "swiss_roll.csv").open()))
    assert [row["seed"] for row in rows] == ["0", "1"]
    # FedAvg is the middle of the triangle and the clients its corners: none can be above the best.
    assert all(0 < float(row[name]) <= float(row["best"]) for row in rows for name in ("fedavg", "clients"))


def test_swiss_roll_is_what_the_paper_describes(swiss_roll: ModuleType) -> None:
    ctx = swiss_roll.context(0, swiss_roll.Scale(points=300, hidden=8, rounds=1))
    assert ctx.data.sizes == (100, 100, 100)
    assert all(sorted(counts) == [10, 10, 80] for counts in ctx.data.counts.tolist())
    average, clients = swiss_roll.train(ctx)
    centre = swiss_roll.mixture(clients, [1 / 3] * 3)
    assert all(torch.allclose(centre.params[name], value, atol=1e-6) for name, value in average.params.items())


def test_the_marked_shares_are_those_of_the_samples(swiss_roll: ModuleType) -> None:
    ctx = swiss_roll.context(0, swiss_roll.Scale(points=300, hidden=8, rounds=1))
    _, clients = swiss_roll.train(ctx)
    triangle = swiss_roll.survey(clients, ctx, sides=1)
    for shares, sample in zip(triangle.drawn.tolist(), swiss_roll.draw(clients, 10, ctx), strict=True):
        mixed = swiss_roll.mixture(clients, shares)
        assert all(torch.allclose(mixed.params[name], value, atol=1e-5) for name, value in sample.params.items())


def test_fed_et_writes_its_table_and_picture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On the digits instead of CIFAR-10: all five algorithms run, and only FedAvg sends the large model."""
    monkeypatch.syspath_prepend(SCRIPTS)
    fed_et = importlib.import_module("fed_et")
    arguments = ["--rounds", "1", "--clients", "5", "--local-steps", "1", "--steps", "1", "--pool", "128", "--out"]
    fed_et.main([*arguments, str(tmp_path)], {"data.source": "digits", "run.workers": 1})
    assert wrote(tmp_path, "fed_et.png", "fed_et.svg", "fed_et.txt")
    sent = {name: float(line.split("│")[4]) for line in (tmp_path / "fed_et.txt").read_text().splitlines()
            for name in ("FedAvg", "FedDF", "Fed-ET, lambda 0.05") if f" {name} " in line}  # fmt: skip
    assert sent["FedAvg"] > 2 * sent["Fed-ET, lambda 0.05"] > 2 * sent["FedDF"]


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
