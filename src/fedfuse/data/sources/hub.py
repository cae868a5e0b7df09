"""Tables from a parquet file or folder, an image folder, or the Hugging Face hub."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedfuse.data.sources import tables
from fedfuse.data.sources.cache import cached, stamp
from fedfuse.data.sources.location import Location
from fedfuse.data.sources.source import Source
from fedfuse.data.sources.tables import Reading
from fedfuse.types import FedfuseError

PATIENCE = 5.0  # seconds that the hub has to answer at all; the library itself would retry for minutes


class UnreachableError(FedfuseError):
    """The hub did not give the data: the message says why, in half a sentence."""


def files_or_hub(
    location: Location,
    id_or_path: str,
    *,
    image: str | None = None,
    label: str | None = None,
    config: str | None = None,
    size: int | None = None,
    columns: tuple[str, ...] | None = None,
    train: str = "train",
    test: str | None = None,
    holdout: float = 0.2,
    revision: str | None = None,
) -> Source:
    """Images from a Hugging Face hub id, a parquet file or folder, or a folder of images, one folder per class.

    Columns that are not named are guessed from their types when only one fits. Integer, string and class columns
    besides the label become `Examples.columns` (`columns` says which), so users can be clients. Without a test
    split, a seeded stratified `holdout` of the training data is the test data. Hub data is kept by id and
    revision: name a newer revision to see newer data.
    """
    how = Reading(image, label, config, size, columns, train, test, holdout, revision)
    for place in places(location, id_or_path):
        if place.exists():
            return from_disk(location, id_or_path, place, how)
    if looks_like_path(id_or_path):
        raise FedfuseError(f"there is no {id_or_path}: give a parquet file, a folder of parquet files or of images")
    try:
        return from_hub(location, id_or_path, how)
    except UnreachableError as error:
        raise FedfuseError(
            f"{id_or_path} was not found.\nLooked in:\n"
            + "".join(f"  - {place}: no such folder\n" for place in places(location, id_or_path))
            + f"  - the Hugging Face hub, {id_or_path}: {error}\nTo get it, do one of:\n"
            f"  1. with a network: hf download {id_or_path} --repo-type dataset --local-dir FOLDER, then name FOLDER\n"
            "  2. unset HF_HUB_OFFLINE, check the id and the network, and run again\n"
            "  3. name a parquet file, a folder of images or package.module:function of your own instead"
        ) from error


def places(location: Location, name: str) -> list[Path]:
    """Where on disk `name` may be: as it is, then under the data folder with and without its owner."""
    under = [] if location.data_dir is None else [location.data_dir / name, location.data_dir / name.rsplit("/", 1)[-1]]
    return list(dict.fromkeys([Path(name).expanduser(), *under]))


def looks_like_path(name: str) -> bool:
    """Whether `name` can only be meant as a path: a hub id is owner/name."""
    return name.startswith(("/", "./", "../", "~")) or name.endswith(".parquet") or name.count("/") != 1


def from_disk(location: Location, name: str, place: Path, how: Reading) -> Source:
    """The source in a parquet file or folder, or an image folder, decoded at most once."""
    files = parquet_files(place, how.config)
    seen = [f for found in files.values() for f in found] or [f for f in place.rglob("*") if f.is_file()]
    root = place.parent if place.is_file() else place
    key = {"how": vars(how), "files": stamp(root, seen), "root": str(root.resolve())}

    def build() -> Source:
        splits = _read_parquet(files) if files else _image_folder(location, place)
        return tables.read(name, splits, how, location.progress)

    return cached(location, _slug(name), key, build)


def from_hub(location: Location, name: str, how: Reading) -> Source:
    """The source with this hub id, decoded at most once: after that the hub is not asked again."""

    def build() -> Source:
        return tables.read(name, _download(name, how), how, location.progress)

    return cached(location, _slug(name), {"how": vars(how), "hub": name}, build)


def parquet_files(place: Path, config: str | None) -> dict[str, list[Path]]:
    """Split name -> its parquet files, in the hub's two layouts: config/train-00000-of-00002 and config/train/0000."""
    if place.is_file():
        return {"train": [place]} if place.suffix == ".parquet" else {}
    found = sorted(place.rglob("*.parquet"))
    configs: dict[str, dict[str, list[Path]]] = {}
    for file in found:
        owner, split = _split_of(file.relative_to(place))
        configs.setdefault(owner, {}).setdefault(split, []).append(file)
    if config is not None and config in configs:
        return configs[config]
    if len(configs) > 1 or (config is not None and configs):
        named = ", ".join(c or "(none)" for c in configs)
        raise FedfuseError(f"{place} holds the configurations {named}: name one of them with config=")
    return next(iter(configs.values()), {})


def _split_of(file: Path) -> tuple[str, str]:
    """The configuration (folder, "" if none) and split of a parquet file, by its path."""
    split = re.sub(r"-\d+(-of-\d+.*)?$", "", file.stem)
    folder = file.parent
    if split.isdigit() and folder.name:  # the hub's converted branch: config/split/0000.parquet
        split, folder = folder.name, folder.parent
    return folder.as_posix().removeprefix("."), split


def _read_parquet(files: Mapping[str, list[Path]]) -> tables.Splits:
    datasets = library()
    import pyarrow  # type: ignore[import-untyped, unused-ignore]
    from pyarrow import parquet

    # Straight from the files: load_dataset("parquet") would first write a second copy of them to its own cache.
    return {
        # A fingerprint of our own, as the library would hash every byte to make one.
        split: datasets.Dataset(pyarrow.concat_tables([parquet.read_table(f) for f in found]), fingerprint=split)
        for split, found in files.items()
    }


def _image_folder(location: Location, place: Path) -> tables.Splits:
    datasets = library()
    if not place.is_dir():
        raise FedfuseError(f"{place} is neither a parquet file nor a folder")
    with _quiet(datasets):
        try:
            loaded = datasets.load_dataset(
                "imagefolder", data_dir=str(place), cache_dir=str(location.cache / "folders")
            )
        except (ValueError, FileNotFoundError, datasets.exceptions.DatasetsError) as error:
            raise FedfuseError(f"{place} holds no parquet files, and no images in class folders: {error}") from error
    return dict(loaded)


def _download(name: str, how: Reading) -> tables.Splits:
    datasets = library()
    if not offline():
        _reachable(name, how.revision)
    try:
        return dict(datasets.load_dataset(name, how.config, revision=how.revision))
    except (ConnectionError, TimeoutError, datasets.exceptions.DatasetNotFoundError) as error:
        raise UnreachableError("offline (HF_HUB_OFFLINE is set)" if offline() else str(error)) from error
    except ValueError as error:
        raise FedfuseError(f"{name} on the hub: {error}") from error


def offline() -> bool:
    """Whether the environment forbids asking the hub, by the library's own variables."""
    said = (os.environ.get(variable, "") for variable in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"))
    return any(value.upper() in {"1", "ON", "YES", "TRUE"} for value in said)


def _reachable(name: str, revision: str | None) -> None:
    """One question with a short time limit, before the library's many."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    try:
        HfApi().dataset_info(name, revision=revision, timeout=PATIENCE)
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise UnreachableError("the hub has no such data set or revision, or it is private") from error
    except Exception as error:  # its HTTP library changes from version to version, and with it the class of error
        raise UnreachableError(f"not reachable ({type(error).__name__}: {error})") from error


def library() -> Any:
    """The `datasets` library, or how to get it."""
    try:
        import datasets
        import PIL  # noqa: F401
    except ImportError as error:
        raise FedfuseError(f'reading images needs {error.name}: pip install "fedfuse[data]"') from error
    return datasets


@contextmanager
def _quiet(datasets: Any) -> Iterator[None]:
    shown = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            datasets.enable_progress_bars()


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.")[-60:] or "data"
