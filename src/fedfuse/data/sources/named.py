"""Data sets of the papers, by name: from a folder, from Debian, or from the Hugging Face hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedfuse.data.sources import hub, idx
from fedfuse.data.sources.cache import cached, stamp
from fedfuse.data.sources.location import Location
from fedfuse.data.sources.reading import Reading
from fedfuse.data.sources.source import Source
from fedfuse.types import FedfuseError

DEBIAN = Path("/usr/share/datasets")
FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
LEAF = "leaf_users"
SENTIMENTS = ((0, "negative"), (1, "positive"), (4, "positive"))  # 1 in LEAF's files, 4 in the original ones
DIGITS = tuple("0123456789")


@dataclass(frozen=True)
class Named:
    """A well-known data set: the possible names of its folder, its hub id, and how to read its tables."""

    name: str
    folders: tuple[str, ...]
    hub_id: str
    how: Reading
    labels: tuple[str, ...] = ()  # for idx files, which have no class names
    debian: str | None = None  # the package, whose files are under DEBIAN / name


def mnist(location: Location) -> Source:
    """Handwritten digits: 60,000 + 10,000 grey images of 28x28, 10 classes."""
    return _find(location, Named("mnist", ("mnist",), "ylecun/mnist", Reading("image", "label"), DIGITS))


def fashion_mnist(location: Location) -> Source:
    """Articles of clothing: 60,000 + 10,000 grey images of 28x28, 10 classes; also from Debian."""
    folders = ("fashion-mnist", "fashion_mnist")
    how = Reading("image", "label")
    package = "dataset-fashion-mnist"
    return _find(location, Named("fashion-mnist", folders, "zalando-datasets/fashion_mnist", how, FASHION, package))


def cifar10(location: Location, *, size: int | None = None) -> Source:
    """Small photographs: 50,000 + 10,000 colour images of 32x32, or resized, 10 classes."""
    return _find(location, Named("cifar10", ("cifar10",), "uoft-cs/cifar10", Reading("img", "label", size=size)))


def cifar100(location: Location, *, coarse: bool = False) -> Source:
    """Small photographs: 50,000 + 10,000 colour images of 32x32, 100 classes, or their 20 groups (coarse)."""
    how = Reading("img", "coarse_label" if coarse else "fine_label")
    return _find(location, Named("cifar100", ("cifar100",), "uoft-cs/cifar100", how))


def tiny_imagenet(location: Location, *, size: int = 32, holdout: float = 0.1) -> Source:
    """Photographs of 32x32, 200 classes; without a test split, a stratified tenth is held out."""
    folders = ("tiny_imagenet_32", "tiny-imagenet", "tiny_imagenet")
    how = Reading("image", "label", size=size, holdout=holdout)
    return _find(location, Named("tiny-imagenet", folders, "zh-plus/tiny-imagenet", how))


def ag_news(location: Location) -> Source:
    """News: 120,000 + 7,600 titles with a first sentence, 4 topics."""
    how = Reading(label="label", text="text", columns=())
    return _find(location, Named("ag-news", ("ag_news", "ag-news"), "fancyzhx/ag_news", how))


def sst2(location: Location) -> Source:
    """Sentences of film reviews, 67,349 for training, 2 classes; tested on validation where test labels are hidden."""
    how = Reading(label="label", text="sentence", columns=())
    return _find(location, Named("sst2", ("sst2", "sst-2"), "stanfordnlp/sst2", how))


def sent140(location: Location, *, config: str | None = None, holdout: float = 0.2) -> Source:
    """Tweets of many users, 2 classes; without a test split, a part is held out. Neutral tweets are left out.

    `config` is a folder within a data folder, such as `leaf_users`, which is read if none is named.
    """
    folders = ("sent140", "sentiment140")
    under = [] if location.data_dir is None else [location.data_dir / folder / LEAF for folder in folders]
    if config is None and any(place.is_dir() for place in under):
        config = LEAF
    how = Reading(
        label="sentiment", text="text", config=config, holdout=holdout, classes=SENTIMENTS,
        columns=("user",) if config in (None, LEAF) else (),
    )  # fmt: skip
    return _find(location, Named("sent140", folders, "stanfordnlp/sentiment140", how))


def _find(location: Location, data: Named) -> Source:
    attempts = []
    for place in _places(location, data):
        if idx.files(place):
            return _from_idx(location, data, place)
        if place.is_dir() and hub.table_files(place, data.how.config):
            return hub.from_disk(location, data.name, place, data.how)
        attempts.append(f"{place}: {'no parquet, CSV or idx files there' if place.exists() else 'no such folder'}")
    if location.data_dir is None:
        attempts.insert(0, "a data folder: none given, and FEDFUSE_DATA is not set")
    try:
        return hub.from_hub(location, data.hub_id, data.how)
    except hub.UnreachableError as error:
        attempts.append(f"the Hugging Face hub, {data.hub_id}: {error}")
        raise FedfuseError(_not_found(data, attempts)) from error


def _places(location: Location, data: Named) -> list[Path]:
    under = [] if location.data_dir is None else [location.data_dir / folder for folder in data.folders]
    return under + ([DEBIAN / data.name] if data.debian else [])


def _from_idx(location: Location, data: Named, place: Path) -> Source:
    def build() -> Source:
        (x, y), (x_test, y_test) = idx.splits(place)
        return Source.of((x, y, {}), (x_test, y_test, {}), data.labels)

    return cached(location, data.name, {"idx": str(place), "files": stamp(place, idx.files(place))}, build)


def _not_found(data: Named, attempts: list[str]) -> str:
    remedies = [
        f"with a network: hf download {data.hub_id} --repo-type dataset --local-dir FOLDER/{data.folders[0]}, "
        "then name FOLDER as the data folder or in FEDFUSE_DATA",
        "unset HF_HUB_OFFLINE, check the network and run again: it is downloaded once",
        f"apt-get install {data.debian}"
        if data.debian
        else "use data that needs no download: digits, swiss-roll or synthetic",
    ]
    return (
        f"{data.name} was not found.\nLooked in:\n"
        + "".join(f"  - {place}\n" for place in attempts)
        + "To get it, do one of:\n"
        + "\n".join(f"  {number}. {remedy}" for number, remedy in enumerate(remedies, 1))
    )
