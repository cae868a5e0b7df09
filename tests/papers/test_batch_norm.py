"""Whose batch-norm statistics: policies for the average, and statistics of the teachers."""

from pathlib import Path

import torch

from fedfuse.papers.item import load
from fedfuse.papers.measures.batch_norm import class_shares, measure
from fedfuse.runs.display import Silent


def test_every_row_is_measured_and_fedavg_is_trained_once(tmp_path: Path) -> None:
    item = load("batch-norm-of-clients")
    settings = {
        "data.examples": 200, "data.shape": [1, 8, 8], "data.pool": {"kind": "noise", "size": 32},
        "partition.scheme": "dirichlet", "partition.min_size": 4, "models.clients": "resnet8", "local.epochs": 1,
        "run.rounds": 1, "run.fraction": 0.3,
    }  # fmt: skip
    small = item.scale("small").model_copy(update={"experiment": "synthetic", "settings": settings})
    item = item.model_copy(update={"groups": item.groups[:1], "small": small})
    first = measure(item, "small", range(1), tmp_path, Silent())
    assert {row.name for row in item.rows} == set(first["0.1"])
    rounds = (tmp_path / "0.1-seed0" / "rounds.jsonl").read_bytes()
    assert measure(item, "small", range(1), tmp_path, Silent()) == first
    assert (tmp_path / "0.1-seed0" / "rounds.jsonl").read_bytes() == rounds


def test_shares_of_classes_count_one_example_more() -> None:
    shares = class_shares([torch.tensor([2]), torch.tensor([0, 0, 1])], classes=3)
    torch.testing.assert_close(shares, torch.tensor([[1 / 4, 1 / 4, 2 / 4], [3 / 6, 2 / 6, 1 / 6]]))
