import builtins
import importlib
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedfuse.data.sources import cache, decode, hub, load
from fedfuse.data.sources.location import Location
from fedfuse.types import FedfuseError
from tests.data.small_data import pictures, write_parquet


def chw(images: np.ndarray) -> np.ndarray:
    return images.transpose(0, 3, 1, 2)


@pytest.fixture
def cifar(tmp_path: Path) -> np.ndarray:
    """A data folder with a cifar10 of 12 + 4 images, in two files as the hub has it."""
    images = pictures(16)
    folder = tmp_path / "data" / "cifar10" / "plain_text"
    write_parquet(folder / "train-00000-of-00002.parquet", images[:6])
    write_parquet(folder / "train-00001-of-00002.parquet", images[6:12])
    write_parquet(folder / "test-00000-of-00001.parquet", images[12:])
    return images


def test_a_named_set_from_a_folder_decodes_to_its_bytes(cifar: np.ndarray, tmp_path: Path) -> None:
    reported: list[tuple[str, float]] = []
    data = load(
        "cifar10", data_dir=tmp_path / "data", progress=lambda what, fraction: reported.append((what, fraction))
    )
    assert np.array_equal(data.train.x.numpy(), chw(cifar[:12]))
    assert np.array_equal(data.test.x.numpy(), chw(cifar[12:]))
    assert data.train.y.tolist() == [0, 1] * 6
    assert data.labels == ("cat", "dog")
    assert reported == [("decoding cifar10 (train)", 1.0), ("decoding cifar10 (test)", 1.0)]


def test_it_is_decoded_once_and_again_when_its_files_change(
    cifar: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load("cifar10", data_dir=tmp_path / "data")
    decode = hub.tables.decode

    def never(*_: object) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(hub.tables, "decode", never)
    again = load("cifar10", data_dir=tmp_path / "data")
    assert np.array_equal(again.train.x, first.train.x)
    assert np.array_equal(again.train.mean, first.train.mean)
    monkeypatch.setattr(hub.tables, "decode", decode)
    file = tmp_path / "data/cifar10/plain_text/test-00000-of-00001.parquet"
    write_parquet(file, cifar[:3])
    assert len(load("cifar10", data_dir=tmp_path / "data").test) == 3


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.parametrize("damage", [cut, Path.unlink, lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("file", ["manifest.json", "00-train.x.npy"])
def test_a_damaged_cache_entry_is_built_again(
    cifar: np.ndarray, tmp_path: Path, damage: Callable[[Path], None], file: str
) -> None:
    load("cifar10", data_dir=tmp_path / "data")
    (entry,) = (tmp_path / "cache").glob("cifar10-*")
    damage(entry / file)
    data = load("cifar10", data_dir=tmp_path / "data")
    assert np.array_equal(data.train.x.numpy(), chw(cifar[:12]))
    assert len(list((tmp_path / "cache").iterdir())) == 1  # nothing left lying about


def test_an_entry_of_other_data_in_its_place_is_built_again(cifar: np.ndarray, tmp_path: Path) -> None:
    load("cifar10", data_dir=tmp_path / "data")
    (entry,) = (tmp_path / "cache").glob("cifar10-*")
    cache.write_source(tmp_path / "cache" / "other", load("digits"))
    shutil.rmtree(entry)
    shutil.copytree(tmp_path / "cache" / "other", entry)
    assert np.array_equal(load("cifar10", data_dir=tmp_path / "data").train.x.numpy(), chw(cifar[:12]))


def test_writing_to_a_cached_tensor_changes_no_file(cifar: np.ndarray, tmp_path: Path) -> None:
    load("cifar10", data_dir=tmp_path / "data").train.x.zero_()
    assert np.array_equal(load("cifar10", data_dir=tmp_path / "data").train.x.numpy(), chw(cifar[:12]))


def test_a_cache_that_cannot_be_written_is_done_without(cifar: np.ndarray, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, where a folder should be")
    with pytest.warns(UserWarning, match="is not cached"):
        data = load("cifar10", data_dir=tmp_path / "data")
    assert len(data.train) == 12


def test_users_and_a_hold_out(tmp_path: Path) -> None:
    users = [f"user{n % 3}" for n in range(20)]
    write_parquet(
        tmp_path / "tweets.parquet", pictures(20), image="photo", user=users, age=[n % 4 + 30 for n in range(20)]
    )
    data = load(str(tmp_path / "tweets.parquet"))
    assert (len(data.train), len(data.test)) == (16, 4)  # a fifth, both classes alike
    assert data.test.y.sort().values.tolist() == [0, 0, 1, 1]
    assert set(data.train.columns) == {"user", "age"}
    assert set(data.train.columns["user"].tolist()) == {0, 1, 2}
    assert set(data.train.columns["age"].tolist()) == {30, 31, 32, 33}  # whole numbers stay as they are
    named = load(str(tmp_path / "tweets.parquet"), arguments={"label": "user", "columns": [], "holdout": 5})
    assert named.labels == ("user0", "user1", "user2")
    assert (len(named.test), dict(named.train.columns)) == (5, {})


def test_cifar100_has_both_labels(tmp_path: Path) -> None:
    folder = tmp_path / "cifar100" / "cifar100"
    for split in ("train", "test"):
        write_parquet(
            folder / f"{split}-00000-of-00001.parquet", pictures(6), "fine_label", coarse_label=[0, 0, 1, 1, 2, 2]
        )
    fine, coarse = (load("cifar100", data_dir=tmp_path, arguments={"coarse": c}) for c in (False, True))
    assert fine.train.y.tolist() == [0, 1] * 3
    assert fine.train.columns["coarse_label"].tolist() == [0, 0, 1, 1, 2, 2]
    assert coarse.train.y.tolist() == [0, 0, 1, 1, 2, 2]


def test_tiny_imagenet_is_resized_and_held_out(tmp_path: Path) -> None:
    write_parquet(tmp_path / "tiny-imagenet/data/train-00000-of-00001.parquet", pictures(20, size=64), image="image")
    data = load("tiny-imagenet", data_dir=tmp_path)
    assert data.train.x.shape == (18, 3, 32, 32)
    assert len(data.test) == 2


def test_ambiguous_columns_are_asked_for(tmp_path: Path) -> None:
    import datasets

    rows = {"a": [Image.new("L", (2, 2))] * 4, "b": [Image.new("L", (2, 2))] * 4, "y": [0, 1, 0, 1], "z": [1, 2, 1, 2]}
    features = datasets.Features(
        {"a": datasets.Image(), "b": datasets.Image(), "y": datasets.Value("int64"), "z": datasets.Value("int64")}
    )
    datasets.Dataset.from_dict(rows, features=features).to_parquet(str(tmp_path / "two.parquet"))
    path = str(tmp_path / "two.parquet")
    with pytest.raises(FedfuseError, match=r"several image columns, a, b: name one with data\.image"):
        load(path)
    with pytest.raises(FedfuseError, match="several columns that may be the label, y, z"):
        load(path, arguments={"image": "a"})
    with pytest.raises(FedfuseError, match=r"no label column 'q', it has a \(image\)"):
        load(path, arguments={"image": "a", "label": "q"})
    data = load(path, arguments={"image": "a", "label": "z", "holdout": 2})
    assert data.labels == ("1", "2")
    assert data.train.shape == (1, 2, 2)


def test_configurations_and_splits(tmp_path: Path) -> None:
    for config, total in (("small", 4), ("large", 8)):
        write_parquet(tmp_path / "set" / config / "train" / "0000.parquet", pictures(total))
        write_parquet(tmp_path / "set" / config / "validation" / "0000.parquet", pictures(2))
    with pytest.raises(FedfuseError, match=r"the configurations large, small: name one of them with data\.config"):
        load("owner/set", data_dir=tmp_path)
    data = load("owner/set", data_dir=tmp_path, arguments={"config": "large"})
    assert (len(data.train), len(data.test)) == (8, 2)
    with pytest.raises(FedfuseError, match=r"has no split 'dev', it has train, validation: name one with data\.test"):
        load("owner/set", data_dir=tmp_path, arguments={"config": "large", "test": "dev"})


def test_a_folder_of_images(tmp_path: Path) -> None:
    for split, total in (("train", 3), ("test", 1)):
        for label in ("ant", "bee"):
            (tmp_path / "insects" / split / label).mkdir(parents=True)
            for n in range(total):
                Image.new("RGB", (5, 4), (n, 0, 255 * (label == "bee"))).save(
                    tmp_path / f"insects/{split}/{label}/{n}.png"
                )
    data = load(str(tmp_path / "insects"))
    assert data.labels == ("ant", "bee")
    assert data.train.x.shape == (6, 3, 4, 5)
    assert (data.train.x[:, 2, 0, 0].long() == 255 * data.train.y).all()
    assert len(data.test) == 2


def test_damaged_files_and_impossible_sizes_are_one_sentence_each(tmp_path: Path) -> None:
    broken = tmp_path / "broken.parquet"
    write_parquet(broken, pictures(8))
    sound = broken.read_bytes()
    images = tmp_path / "insects"
    for label in ("ant", "bee"):
        (images / "train" / label).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (8, 8), (number, 0, 0)).save(images / "train" / label / f"{number}.png")
    cut_short = images / "train/bee/2.png"
    whole = cut_short.read_bytes()
    for content, settings, message in (
        (sound[:-20], {}, f"{broken}: not a parquet file that can be read"),
        (b"", {}, f"{broken}: not a parquet file that can be read"),
        (sound, {"holdout": 1.0}, "holdout = 1: 1 test examples for 2 classes"),
        (sound, {"holdout": -1}, "-1"),
        (sound, {"size": -4}, "size = -4: give the side of the resized images in pixels"),
        (sound, {"size": 1_000_000}, "size = 1000000: give the side"),
    ):
        broken.write_bytes(content)
        with pytest.raises(FedfuseError, match=re.escape(message)) as refused:
            load(str(broken), arguments=settings)
        assert "\n" not in str(refused.value)
    cut_short.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FedfuseError, match=r"bee/2\.png is not an image that Pillow can read: remove it"):
        load(str(images), arguments={"holdout": 2})


def test_paths_and_ids_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FedfuseError, match=r"there is no \./nothing: give a parquet or CSV file"):
        load("./nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FedfuseError, match="holds no parquet or CSV files, and no images"):
        load(str(tmp_path / "empty"))
    importlib.import_module("datasets")  # seconds on a busy machine; what is timed is that no network is waited for
    began = time.monotonic()
    with pytest.raises(FedfuseError, match=r"owner/name was not found.(.|\n)*offline(.|\n)*1\. with(.|\n)*3\. name"):
        load("owner/name", data_dir=tmp_path)
    assert time.monotonic() - began < 10


def test_a_hub_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch, location: Location) -> None:
    import huggingface_hub

    asked = []

    def unreachable(self: Any, name: str, **arguments: Any) -> None:
        asked.append((name, arguments["timeout"]))
        raise ConnectionError("no route to host")

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", unreachable)
    with pytest.raises(FedfuseError, match=r"uoft-cs/cifar10: not reachable \(ConnectionError: no route to host\)"):
        load("cifar10", data_dir=location.data_dir)
    assert asked == [("uoft-cs/cifar10", hub.TIMEOUT)]


def test_without_the_library_it_says_how_to_get_it(
    cifar: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "datasets":
            raise ModuleNotFoundError("No module named 'datasets'", name="datasets")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(FedfuseError, match=r'needs datasets: pip install "fedfuse\[data\]"'):
        load("cifar10", data_dir=tmp_path / "data")


def encoded(tmp_path: Path, *images: Image.Image) -> list[str]:
    paths = []
    for number, image in enumerate(images):
        paths.append(str(tmp_path / f"{number}.png"))
        image.save(paths[-1])
    return paths


def test_grey_stays_grey_until_colour_appears(tmp_path: Path) -> None:
    grey, colour = Image.new("L", (3, 2), 7), Image.new("RGB", (3, 2), (1, 2, 3))
    assert decode.decode(encoded(tmp_path, grey, grey), None, lambda _: None).shape == (2, 1, 2, 3)
    mixed = decode.decode(encoded(tmp_path, grey, colour), None, lambda _: None)
    assert mixed[:, :, 0, 0].tolist() == [[7, 7, 7], [1, 2, 3]]


def test_sizes_must_agree_unless_one_is_given(tmp_path: Path) -> None:
    paths = encoded(tmp_path, Image.new("L", (4, 4), 9), Image.new("L", (2, 2), 5))
    with pytest.raises(FedfuseError, match=r"image 1 is \(2, 2\), the first is \(4, 4\): give size"):
        decode.decode(paths, None, lambda _: None)
    assert decode.decode(paths, 2, lambda _: None).flatten(1).tolist() == [[9] * 4, [5] * 4]


def test_threads_and_one_thread_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = encoded(tmp_path, *(Image.fromarray(i) for i in pictures(7)))
    alone = decode.decode(paths, None, lambda _: None)
    monkeypatch.setattr(decode, "WORTH_A_THREAD", 1)
    monkeypatch.setattr(decode, "BLOCK", 2)
    reports: list[float] = []
    assert np.array_equal(decode.decode(paths, None, reports.append), alone)
    assert reports == [0.25, 0.5, 0.75, 1.0]


def test_a_broken_image_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(os.urandom(64))
    with pytest.raises(FedfuseError, match=r"bad\.png is not an image"):
        decode.decode([str(tmp_path / "bad.png")], None, lambda _: None)
