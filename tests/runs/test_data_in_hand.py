"""Data that a program has in hand: every kind becomes a name that other processes can read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset, TensorDataset

from fedfuse.config.experiment import Experiment, load
from fedfuse.data.federation import Federation
from fedfuse.runs.run import run
from fedfuse.runs.setup import load_federation
from fedfuse.types import FedfuseError

N = 60
X = np.random.default_rng(0).normal(size=(N, 5)).astype(np.float32)
Y = np.arange(N) % 3
FRAME = pd.DataFrame({**{f"x{n}": X[:, n] for n in range(5)}, "site": ["a", "b"] * 30, "kind": [f"k{y}" for y in Y]})
PIXELS = np.random.default_rng(1).integers(0, 256, (N, 6, 6, 3), dtype=np.uint8)


class Photos(Dataset[Any]):
    """Pillow images and labels, as torchvision gives them."""

    def __init__(self, grow: int = 0) -> None:
        self.grow = grow

    def __len__(self) -> int:
        return N

    def __getitem__(self, row: int) -> tuple[Any, int]:
        return Image.fromarray(PIXELS[row]).resize((6 + self.grow * (row % 2), 6)), int(Y[row])


def hugging_face() -> datasets.Dataset:
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])})
    rows = {"img": [Image.fromarray(p) for p in PIXELS], "label": Y.tolist()}
    return datasets.Dataset.from_dict(rows, features=features)


def federation(data: Any, **sections: Any) -> Federation:
    return load_federation(Experiment(data=data, **{"partition": {"clients": 2}, **sections}))


@pytest.mark.parametrize(
    ("data", "shape", "tests", "labels"),
    [
        ((X, Y), (5,), 12, "012"),
        ({"source": (X, Y), "holdout": 0.5}, (5,), 30, "012"),
        ((X.tolist(), [f"k{y}" for y in Y]), (5,), 12, ["k0", "k1", "k2"]),
        ((torch.tensor(X), torch.tensor(Y)), (5,), 12, "012"),
        (TensorDataset(torch.tensor(X), torch.tensor(Y)), (5,), 12, "012"),
        ((TensorDataset(torch.tensor(X), torch.tensor(Y)), Subset(Photos(), [])), (5,), 0, None),
        (Photos(), (3, 6, 6), 12, "012"),
        (hugging_face, (3, 6, 6), 12, "abc"),
        (lambda: (X, Y), (5,), 12, "012"),
        ({"source": FRAME, "label": "kind", "columns": ["site"]}, (5,), 12, ["k0", "k1", "k2"]),
        ({"source": (FRAME[:40], FRAME[40:]), "label": "kind"}, (7,), 20, ["k0", "k1", "k2"]),
    ],
)  # fmt: skip
def test_every_kind(data: Any, shape: tuple[int, ...], tests: int, labels: Any) -> None:
    if labels is None:
        with pytest.raises(FedfuseError, match="the Subset is empty"):
            federation(data)
        return
    read = federation(data)
    assert (read.train.shape, len(read.test), list(read.labels)) == (shape, tests, list(labels))


def test_a_frame_is_a_file_by_its_content(tmp_path: Path) -> None:
    """Its column may be the client; a stored experiment runs in worker processes, and again."""
    sections: dict[str, Any] = {
        "data": {"source": FRAME, "label": "kind", "pool": {"kind": "split", "size": 10}},
        "partition": {"scheme": "column", "column": "site", "clients": 2},
        "run": {"rounds": 1, "workers": 2},
    }
    experiment = Experiment(**sections)
    assert federation(**sections).train.shape == (5,)  # the site is no feature
    assert Experiment(**{**sections, "data": {**sections["data"], "source": FRAME.copy()}}) == experiment
    assert Experiment(**{**sections, "data": {**sections["data"], "source": FRAME[:50]}}) != experiment
    first = run(experiment, tmp_path / "run")
    again = run(load(tmp_path / "run" / "experiment.toml"), tmp_path / "again")
    assert first.final.test_accuracy == again.final.test_accuracy


def test_a_hugging_face_selection_is_what_is_kept() -> None:
    selected = hugging_face().shuffle(seed=0).select(range(30))
    read = federation(datasets.DatasetDict({"train": selected, "test": hugging_face()}))
    assert len(read.test) == N
    assert sum(len(part) for part in (read.train, read.validation)) == 30


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: FRAME, "several columns that may be the label, site, kind: name one with data.label"),
        (lambda: Photos(grow=1), r"example 1 of the Photos is \(6, 7, 3\), the first is \(6, 6, 3\): give"),
        (lambda: hugging_face().to_iterable_dataset(), "load it without streaming"),
        (lambda: pd.DataFrame({"a": [1, "two"] * 5, "label": [0, 1] * 5}), "a column of mixed values"),
        (lambda: TensorDataset(torch.tensor(X)), r"is 1 values: each must be a pair \(x, y\)"),
    ],
)  # fmt: skip
def test_what_cannot_be_used(data: Callable[[], Any], message: str) -> None:
    with pytest.raises(FedfuseError, match=message):
        federation(data())


def test_a_table_that_is_gone_is_asked_for_again() -> None:
    with pytest.raises(FedfuseError, match=r"table:0{32}: this table was passed in Python.*pass it again"):
        federation({"source": f"table:{'0' * 32}", "label": "kind"})
