"""The app of examples/flower/cifar10 at a small size: three architectures, a larger server, data that nodes bring."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from flwr.cli.config_utils import load_and_validate

import fedfuse
from fedfuse.flower import Deployment, client_app
from fedfuse.flower.server import serve
from fedfuse.types import FedfuseError
from tests.command_line import ROOT, rounds_of
from tests.flower.federations import LIKE_CIFAR, bits_of
from tests.flower.grid import LocalGrid

APP = ROOT / "examples" / "flower" / "cifar10"
ARCHS = ["lenet", "convnet", "resnet8:gn"]


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, ModuleType]]:
    """The app's own: it is not a package, Flower puts its folder on the path."""
    monkeypatch.syspath_prepend(str(APP))
    import client_app as app
    import split_data

    yield app, split_data
    for name in ("client_app", "split_data"):
        del sys.modules[name]


@pytest.fixture
def own(modules: tuple[ModuleType, ModuleType]) -> ModuleType:
    return modules[0]


@pytest.fixture
def small() -> fedfuse.Experiment:
    return fedfuse.load(APP / "experiment.toml", LIKE_CIFAR)


def test_flower_takes_the_app() -> None:
    config, _ = load_and_validate(APP / "pyproject.toml")
    assert set(config["tool"]["flwr"]["app"]["config"]) == {"out", "resume", "timeout", "wait"}
    made = fedfuse.load(APP / "experiment.toml")
    assert (made.algorithm.name, made.partition.clients) == ("fed-et", 3)
    assert list(made.models.weights) == ARCHS


def test_nodes_that_bring_their_data_give_the_bits_of_a_simulation(
    small: fedfuse.Experiment, modules: tuple[ModuleType, ModuleType], tmp_path: Path
) -> None:
    app, split_data = modules
    files = split_data.split(small, tmp_path / "data")
    assert [file.name for file in files] == ["node-0.npz", "node-1.npz", "node-2.npz"]
    grid = LocalGrid(
        client_app(small, data=app.own), {70 + k: {"partition-id": k, "data": str(files[k])} for k in range(3)}
    )
    serve(small, grid, Deployment(str(tmp_path / "there"), timeout=300, wait=10))
    fedfuse.run(small, tmp_path / "here")
    assert bits_of(tmp_path / "there") == bits_of(tmp_path / "here")
    assert rounds_of(tmp_path / "there") == rounds_of(tmp_path / "here")
    assert all(record["rejected"] == {} for record in rounds_of(tmp_path / "there"))


def test_the_least_capable_node_has_the_first_architecture(
    small: fedfuse.Experiment, modules: tuple[ModuleType, ModuleType], tmp_path: Path
) -> None:
    app, split_data = modules
    one = small.with_settings({"run.rounds": 1})
    files = split_data.split(one, tmp_path / "data")
    nodes = {70 + k: {"partition-id": k, "capability": 9 - k, "data": str(files[k])} for k in range(3)}
    grid = LocalGrid(client_app(one, data=app.own), nodes)
    serve(one, grid, Deployment(str(tmp_path / "run"), timeout=300, wait=10))
    excerpt = {
        int(message.content["about"]["client"]): str(message.content["about"]["arch"])
        for push in grid.pushes
        for message in push
        if "arch" in message.content["about"]
    }
    assert [excerpt[k].partition("+")[0] for k in (2, 1, 0)] == ARCHS


def test_split_is_not_written_into_the_app(small: fedfuse.Experiment, modules: tuple[ModuleType, ModuleType]) -> None:
    with pytest.raises(FedfuseError, match="goes to every node"):
        modules[1].split(small, APP / "data")
    assert not (APP / "data").exists()


class Given:
    def __init__(self, **config: str) -> None:
        self.node_config = config


def test_a_node_reads_what_is_its_own(own: ModuleType, tmp_path: Path) -> None:
    images = np.arange(2 * 3 * 32 * 32, dtype=np.uint8).reshape(2, 3, 32, 32)
    np.savez(tmp_path / "mine.npz", x=images, y=np.array([9, 0], dtype=np.int32))
    x, y = own.own(Given(data=str(tmp_path / "mine.npz")))
    assert torch.equal(x, torch.from_numpy(images))
    assert (y.dtype, y.tolist()) == (torch.int64, [9, 0])


IMAGES, LABELS = np.zeros((2, 3, 32, 32), dtype=np.uint8), np.array([0, 9])


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"x": IMAGES}, "cannot read x and y from mine.npz: KeyError"),
        ({"x": IMAGES.astype(object), "y": LABELS}, "cannot read x and y from mine.npz: ValueError"),
        ({"x": IMAGES.astype(np.float32), "y": LABELS}, "images float32"),
        ({"x": IMAGES[:, :1], "y": LABELS}, r"images uint8 \(2, 1, 32, 32\)"),
        ({"x": IMAGES, "y": LABELS[:1]}, r"needed are uint8 \(1, 3, 32, 32\)"),
        ({"x": IMAGES[:0], "y": LABELS[:0]}, r"images uint8 \(0, 3, 32, 32\)"),
        ({"x": IMAGES, "y": LABELS + 1}, "whole numbers from 0 to 9"),
        ({"x": IMAGES, "y": LABELS + 0.5}, "whole numbers from 0 to 9"),
    ],
)
def test_a_file_that_is_wrong_is_named_and_not_where_it_lies(
    content: dict[str, np.ndarray], complaint: str, own: ModuleType, tmp_path: Path
) -> None:
    np.savez(tmp_path / "mine.npz", **content)
    with pytest.raises(FedfuseError, match=complaint) as excerpt:
        own.own(Given(data=str(tmp_path / "mine.npz")))
    assert str(tmp_path) not in str(excerpt.value)


def test_a_node_without_data_says_so(own: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(FedfuseError, match="start it with --node-config"):
        own.own(Given())
    with pytest.raises(FedfuseError, match="FileNotFoundError"):
        own.own(Given(data=str(tmp_path / "none.npz")))
