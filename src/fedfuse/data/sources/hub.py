"""Read tables from parquet or CSV files or folders, an image folder, or the Hugging Face hub."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedfuse.data.sources import tables
from fedfuse.data.sources.cache import cached, stamp
from fedfuse.data.sources.files import FORMATS, IMAGES, read_table
from fedfuse.data.sources.location import Location
from fedfuse.data.sources.reading import Reading
from fedfuse.data.sources.source import Source
from fedfuse.files import slug
from fedfuse.types import FedfuseError

TIMEOUT = 5.0  # seconds for the hub's first answer; the library itself would retry for minutes


class UnreachableError(FedfuseError):
    """The data could not be read from the hub. The message is the reason, as part of a longer sentence."""


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
    text: str | tuple[str, ...] | None = None,
    features: tuple[str, ...] | None = None,
) -> Source:
    """Images, texts or tables from a hub id, a parquet or CSV file or a folder of them, or images in class folders.

    `text` names the column of texts, or two columns for pairs; `features` columns of numbers and categories, by default
    all that have no other use. Columns that are not named are chosen by looking at them, if only one fits. Integer,
    string and class columns besides the label (or only those in `columns`) become `Examples.columns`, so that users can
    be clients. Without a test split, a seeded stratified `holdout` of the
    training data is the test data. Hub data is cached by id and revision: name a newer revision to get newer data.
    """
    how = Reading(image, label, config, size, columns, train, test, holdout, revision, text, features=features)
    return read_files_or_hub(location, id_or_path, how)


def read_files_or_hub(location: Location, id_or_path: str, how: Reading) -> Source:
    """Like `files_or_hub`, with its settings as a Reading."""
    for place in places(location, id_or_path):
        if place.exists():
            return from_disk(location, id_or_path, place, how)
    if looks_like_path(id_or_path):
        raise _no_such_path(id_or_path)
    try:
        return from_hub(location, id_or_path, how)
    except UnreachableError as error:
        raise _not_found(location, id_or_path, error) from error


def _no_such_path(path: str) -> FedfuseError:
    return FedfuseError(f"there is no {path}: give a parquet or CSV file, a folder of them, or of images")


def _not_found(location: Location, name: str, error: UnreachableError) -> FedfuseError:
    return FedfuseError(
        f"{name} was not found.\nLooked in:\n"
        + "".join(f"  - {place}: no such folder\n" for place in places(location, name))
        + f"  - the Hugging Face hub, {name}: {error}\nTo get it, do one of:\n"
        f"  1. with a network: hf download {name} --repo-type dataset --local-dir FOLDER, then name FOLDER\n"
        "  2. unset HF_HUB_OFFLINE, check the id and the network, and run again\n"
        "  3. name a parquet or CSV file, a folder of images or package.module:function of your own instead"
    )


def places(location: Location, name: str) -> list[Path]:
    """The paths where `name` may be: as it is, then in the data folder with and without its owner."""
    under = [] if location.data_dir is None else [location.data_dir / name, location.data_dir / name.rsplit("/", 1)[-1]]
    return list(dict.fromkeys([Path(name).expanduser(), *under]))


def looks_like_path(name: str) -> bool:
    """Whether `name` can only be a path, since a hub id is owner/name."""
    return name.startswith(("/", "./", "../", "~")) or name.endswith(FORMATS) or name.count("/") != 1


def from_disk(location: Location, name: str, place: Path, how: Reading) -> Source:
    """Load a parquet or CSV file or folder, or an image folder, decoding it at most once."""
    files = table_files(place, how.config)
    contents = [f for paths in files.values() for f in paths] or [f for f in place.rglob("*") if f.is_file()]
    root = place.parent if place.is_file() else place
    key = {"how": how.key(), "files": stamp(root, contents), "root": str(root.resolve())}

    def build() -> Source:
        return tables.read(name, splits_on_disk(location, place, how), how, location.progress)

    return cached(location, slug(name)[-60:] or "data", key, build)


def splits_on_disk(location: Location, place: Path, how: Reading) -> tables.Splits:
    """Read the tables of a parquet or CSV file or folder, or of an image folder."""
    files = table_files(place, how.config)
    return _read_tables(files, how) if files else _image_folder(location, place)


def splits_of(location: Location, id_or_path: str, how: Reading) -> tables.Splits:
    """Read the tables of a file, a folder or a hub id, without converting them."""
    for place in places(location, id_or_path):
        if place.exists():
            return splits_on_disk(location, place, how)
    if looks_like_path(id_or_path):
        raise _no_such_path(id_or_path)
    try:
        return _download(id_or_path, how)
    except UnreachableError as error:
        raise _not_found(location, id_or_path, error) from error


def from_hub(location: Location, name: str, how: Reading) -> Source:
    """Load data by hub id, decoding it at most once. From then on the hub is not contacted."""

    def build() -> Source:
        return tables.read(name, _download(name, how), how, location.progress)

    return cached(location, slug(name)[-60:] or "data", {"how": how.key(), "hub": name}, build)


def table_files(place: Path, config: str | None) -> dict[str, list[Path]]:
    """Split name -> its parquet files, in the hub's two layouts: config/train-00000-of-00002 and config/train/0000.

    CSV files count where there are neither parquet files nor images, which may have their facts beside them.
    """
    if place.is_file():
        return {"train": [place]} if place.suffix in FORMATS else {}
    paths = sorted(place.rglob("*.parquet"))
    if not paths and not any(file.suffix.lower() in IMAGES for file in place.rglob("*")):
        paths = sorted(place.rglob("*.csv"))
    configs: dict[str, dict[str, list[Path]]] = {}
    for file in paths:
        owner, split = _split_of(file.relative_to(place))
        configs.setdefault(owner, {}).setdefault(split, []).append(file)
    if config is not None and config in configs:
        return configs[config]
    if len(configs) > 1 or (config is not None and configs):
        names = ", ".join(c or "(none)" for c in configs)
        raise FedfuseError(f"{place} holds the configurations {names}: name one of them with data.config")
    return next(iter(configs.values()), {})


def _split_of(file: Path) -> tuple[str, str]:
    """The configuration (folder, "" if none) and split of a parquet file, by its path."""
    split = re.sub(r"-\d+(-of-\d+.*)?$", "", file.stem)
    folder = file.parent
    if split.isdigit() and folder.name:  # the hub's converted branch: config/split/0000.parquet
        split, folder = folder.name, folder.parent
    return folder.as_posix().removeprefix("."), split


def _read_tables(files: Mapping[str, list[Path]], how: Reading) -> tables.Splits:
    datasets = library()
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    texts = () if how.text is None else (how.text,) if isinstance(how.text, str) else how.text
    # Read the files directly: load_dataset("parquet") would first copy them to its own cache.
    return {
        # With a fingerprint given, the library does not hash every byte to make one.
        split: datasets.Dataset(pyarrow.concat_tables([read_table(f, texts) for f in paths]), fingerprint=split)
        for split, paths in files.items()
    }


def _image_folder(location: Location, place: Path) -> tables.Splits:
    datasets = library()
    if not place.is_dir():
        raise FedfuseError(f"{place} is neither a parquet or CSV file nor a folder: give one of them")
    with quiet(datasets):
        try:
            splits = datasets.load_dataset(
                "imagefolder", data_dir=str(place), cache_dir=str(location.cache / "folders")
            )
        except (ValueError, FileNotFoundError, datasets.exceptions.DatasetsError) as error:
            raise FedfuseError(
                f"{place} holds no parquet or CSV files, and no images in class folders: {error}"
            ) from error
    return dict(splits)


def _download(name: str, how: Reading) -> tables.Splits:
    datasets = library()
    if not offline():
        _check_reachable(name, how.revision)
    try:
        return dict(datasets.load_dataset(name, how.config, revision=how.revision))
    except (ConnectionError, TimeoutError, datasets.exceptions.DatasetNotFoundError) as error:
        raise UnreachableError("offline (HF_HUB_OFFLINE is set)" if offline() else str(error)) from error
    except ValueError as error:
        raise FedfuseError(f"{name} on the hub: {error}") from error


def offline() -> bool:
    """Whether the library's environment variables forbid contacting the hub."""
    values = (os.environ.get(variable, "") for variable in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"))
    return any(value.upper() in {"1", "ON", "YES", "TRUE"} for value in values)


def _check_reachable(name: str, revision: str | None) -> None:
    """Send one request with a short timeout, before the library sends many. Raise an UnreachableError if it fails."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    try:
        HfApi().dataset_info(name, revision=revision, timeout=TIMEOUT)
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise UnreachableError("the hub has no such data set or revision, or it is private") from error
    except Exception as error:  # the class of error depends on the version of its HTTP library
        raise UnreachableError(f"not reachable ({type(error).__name__}: {error})") from error


def library() -> Any:
    """The `datasets` library. Raise a FedfuseError that says how to install it if it is missing."""
    try:
        import datasets
        import PIL  # noqa: F401
    except ImportError as error:
        raise FedfuseError(f'reading tables and images needs {error.name}: pip install "fedfuse[data]"') from error
    return datasets


@contextmanager
def quiet(datasets: Any) -> Iterator[None]:
    enabled = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if enabled:
            datasets.enable_progress_bars()
