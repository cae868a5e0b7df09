import gzip
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from fedfuse.data.sources import SOURCES, load, load_from, named
from fedfuse.data.sources.location import Location
from fedfuse.data.sources.source import Source
from fedfuse.types import FedfuseError


def test_every_source_says_what_it_is() -> None:
    assert next(iter(SOURCES)) == "digits"
    for function in SOURCES.values():
        assert (function.__doc__ or "").partition("\n")[0].endswith(".")


def test_digits() -> None:
    data = load("digits")
    assert data.train.shape == (1, 8, 8)
    assert (len(data.train), len(data.test), len(data.labels)) == (1437, 360, 10)
    assert data.train.x.dtype == torch.uint8
    assert int(data.train.x.max()) == 255
    shares = torch.bincount(data.test.y) / torch.bincount(torch.cat((data.train.y, data.test.y)))
    assert (shares - 0.2).abs().max() < 0.01
    assert torch.equal(data.test.mean, data.train.mean)
    assert torch.equal(load("digits").test.x, data.test.x)


def test_swiss_roll() -> None:
    data = load("swiss-roll", arguments={"examples": 300, "noise": 0.0})
    assert data.train.shape == (2,)
    assert torch.bincount(data.train.y).tolist() == [100, 100, 100]
    # An arm at parameter t is t away from the middle, and turned by t plus the arm's third of the circle.
    radius = data.train.x.norm(dim=1)
    angle = torch.atan2(data.train.x[:, 1], data.train.x[:, 0])
    turned = (angle - radius - data.train.y * 2 * torch.pi / 3) / (2 * torch.pi)
    assert (turned - turned.round()).abs().max() < 1e-4


@pytest.mark.parametrize(("shape", "dtype"), [((3, 8, 8), torch.uint8), ((5,), torch.float32)])
def test_synthetic_has_a_signal_that_a_nearest_prototype_finds(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    arguments: Mapping[str, object] = {"examples": 400, "classes": 4, "shape": list(shape), "noise": 0.4}
    data = load("synthetic", arguments=arguments)
    assert data.train.x.dtype == dtype
    assert data.train.x.shape == (400, *shape)
    assert len(data.test) == 80
    x, x_test = (part.x.float().flatten(1) for part in (data.train, data.test))
    means = torch.stack([x[data.train.y == c].mean(0) for c in range(4)])
    assert (torch.cdist(x_test, means).argmin(1) == data.test.y).float().mean() > 0.9
    assert torch.equal(load("synthetic", arguments=arguments).train.x, data.train.x)
    assert not torch.equal(load("synthetic", arguments={**arguments, "seed": 1}).train.x, data.train.x)


def test_synthetic_without_noise_is_its_prototypes() -> None:
    data = load("synthetic", arguments={"examples": 20, "classes": 2, "noise": 0, "shape": [1, 4, 4]})
    assert torch.equal(data.train.x[0::2], data.train.x[0].expand(10, 1, 4, 4))


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(FedfuseError, match=r"data source synthetic: colour.*Its settings: examples"):
        load("synthetic", arguments={"colour": 3})
    with pytest.raises(FedfuseError, match="examples: Input should be a valid integer"):
        load("synthetic", arguments={"examples": "many"})
    with pytest.raises(FedfuseError, match="noise is 2"):
        load("synthetic", arguments={"noise": 2})


def test_an_unknown_name_points_to_the_nearest() -> None:
    with pytest.raises(FedfuseError, match=r"did you mean cifar10\?.*package.module:function"):
        load("cifar-10")


def write_idx(path: Path, array: np.ndarray, zipped: bool = True) -> None:
    raw = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype(np.uint8).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(path.name + (".gz" if zipped else "")).write_bytes(gzip.compress(raw) if zipped else raw)


def write_fashion(folder: Path, zipped: bool) -> np.ndarray:
    images = np.random.default_rng(0).integers(0, 256, (30, 28, 28), dtype=np.uint8)
    for split, total in (("train", 30), ("t10k", 10)):
        write_idx(folder / f"{split}-images-idx3-ubyte", images[:total], zipped)
        write_idx(folder / f"{split}-labels-idx1-ubyte", np.arange(total) % 10, zipped)
    return images


@pytest.mark.parametrize("zipped", [True, False])
def test_fashion_mnist_from_debian(zipped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "DEBIAN", tmp_path / "debian")
    images = write_fashion(tmp_path / "debian" / "fashion-mnist", zipped)
    for _ in range(2):  # read, then from the cache
        data = load("fashion-mnist")
        assert np.array_equal(data.train.x[:, 0].numpy(), images)
        assert data.test.y.tolist() == list(range(10))
        assert data.labels[9] == "Ankle boot"


def test_a_data_folder_comes_before_debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "DEBIAN", tmp_path / "debian")
    write_fashion(tmp_path / "mine" / "fashion_mnist", True)
    monkeypatch.setenv("FEDFUSE_DATA", str(tmp_path / "mine"))
    assert len(load("fashion-mnist").train) == 30


def test_an_idx_file_cut_short(tmp_path: Path) -> None:
    write_fashion(tmp_path / "mnist", False)
    path = tmp_path / "mnist" / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FedfuseError, match="holds 23519 values, but its header says 23520"):
        load("mnist", data_dir=tmp_path)


def test_what_is_not_found_says_where_it_was_looked_for_and_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named, "DEBIAN", tmp_path / "debian")
    with pytest.raises(FedfuseError) as caught:
        load("fashion-mnist", data_dir=tmp_path / "data")
    result = str(caught.value)
    places = ("data/fashion-mnist: no such folder", "debian/fashion-mnist: no such", "hub, zalando-datasets/fashion_")
    for place in (*places, "offline (HF_HUB_OFFLINE is set)"):
        assert place in result
    for remedy in ("1. with a network: hf download", "2. unset HF_HUB_OFFLINE", "3. apt-get install dataset-fashion"):
        assert remedy in result
    with pytest.raises(
        FedfuseError, match=r"FEDFUSE_DATA is not set(.|\n)*3\. use data that needs no download: digits"
    ):
        load("cifar10")


OWN = """
import numpy as np
def arrays(total=6, channels_last=True):
    x = np.zeros((total, 4, 4, 3) if channels_last else (total, 3, 4, 4), np.uint8)
    return (x, np.arange(total) % 3), (x[:2], np.arange(2))
def nothing(): return 3
def floats(): return (np.ones((4, 2, 2)), [0, 1, 0, 1]), (np.ones((2, 2, 2)), [0, 1])
def negative(): return (np.ones((2, 2)), [0, -1]), (np.ones((2, 2)), [0, 1])
def ready():
    from fedfuse.data.sources import load
    return load("digits")
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_own_data.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("my_own_data", None)
    return "my_own_data"


@pytest.mark.parametrize("last", [True, False])
def test_a_function_of_the_users_own(own: str, last: bool) -> None:
    data = load(f"{own}:arrays", arguments={"total": 9, "channels_last": last})
    assert data.train.x.shape == (9, 3, 4, 4)
    assert data.labels == ("0", "1", "2")
    assert isinstance(load(f"{own}:ready"), Source)
    assert load(f"{own}:floats").train.x.dtype == torch.float32


def test_a_function_of_the_users_own_that_is_wrong(own: str) -> None:
    with pytest.raises(FedfuseError, match="returned int, but a Source or"):
        load(f"{own}:nothing")
    with pytest.raises(FedfuseError, match="number the classes from 0"):
        load(f"{own}:negative")
    with pytest.raises(FedfuseError, match="has no 'missing'"):
        load(f"{own}:missing")
    with pytest.raises(FedfuseError, match="size: Extra inputs"):
        load(f"{own}:arrays", arguments={"size": 3})


def test_a_shelf_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDFUSE_DATA", str(tmp_path))
    assert Location.at().data_dir == tmp_path
    assert Location.at(tmp_path / "other").data_dir == tmp_path / "other"
    assert len(load_from(Location.at(), "digits", {}).test) == 360
