"""Data as they are stored, before any model's normalisation or tokenizer: images, other numbers, or texts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedfuse.data.examples import Examples
from fedfuse.data.sources import load_from
from fedfuse.data.sources.decode import decode
from fedfuse.data.sources.files import FORMATS, read_table
from fedfuse.data.sources.hub import places
from fedfuse.data.sources.location import Location
from fedfuse.data.sources.source import Source
from fedfuse.data.sources.tables import strings_of
from fedfuse.data.statistics import channel_statistics
from fedfuse.in_hand.pools import LABELS
from fedfuse.in_hand.teachers import Names
from fedfuse.types import FedfuseError

TEXT = ("text", "sentence")  # columns that are read as texts if no other is named
COLUMN = "::"  # before the name of a text column
CHUNK = 4096  # rows hashed at once


@dataclass(frozen=True, eq=False)
class Numbers:
    """Images (N, C, H, W) as bytes, or any floats (N, ...)."""

    name: str
    x: Tensor
    y: Tensor | None  # (N,)
    labels: Names | None
    mean: tuple[float, ...]  # of x / 255 for bytes, of x for floats
    std: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.x)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the inputs."""
        return hash_of({"x": self.x})


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts, not yet tokenized."""

    name: str
    x: list[str]
    y: Tensor | None  # (N,)
    labels: Names | None = None

    def __len__(self) -> int:
        return len(self.x)


Raw = Numbers | Texts


def hash_of(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of tensors with their names, types and shapes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        for part in torch.split(tensor.detach().cpu(), CHUNK) if tensor.dim() else [tensor.detach().cpu()]:
            digest.update(part.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def read_pool(name: str, location: Location) -> Raw:
    """Read the training inputs of a source; of a single file, all of them. Labels are dropped."""
    file, column = _file(name, location)
    if file is None:
        return _of_source(name, load_from(location, name, {}, labeled=False), "train")
    schema = _schema(file)
    if column is None and (image := _image_column(schema)) is not None:
        if not any(label in schema.names for label in LABELS):
            return _unlabeled_images(name, file, image)
        return _whole(name, load_from(location, str(file), {}, labeled=False), labeled=False)
    return _texts(name, file, _text_column(name, schema, column), labeled=False)


def read_labeled(name: str, location: Location, option: str) -> Raw:
    """Read the test data of a source and their labels; of a single file, all of them."""
    file, column = _file(name, location)
    if file is None:
        return _of_source(name, load_from(location, name, {}), "test")
    schema = _schema(file)
    if not any(label in schema.names for label in LABELS):
        raise FedfuseError(
            f"{option} {name} has no column of labels: add one called label, with whole numbers or names"
        )
    if column is None and _image_column(schema) is not None:
        return _whole(name, load_from(location, str(file), {}), labeled=True)
    return _texts(name, file, _text_column(name, schema, column), labeled=True)


def _file(name: str, location: Location) -> tuple[Path | None, str | None]:
    """Return the parquet or CSV file that `name` is, and the column after `::`; (None, None) for any other source."""
    path, mark, column = name.partition(COLUMN)
    if not path.endswith(FORMATS):
        if mark:
            raise FedfuseError(f"{name}: only a parquet or CSV file has columns: write FILE.parquet{COLUMN}COLUMN")
        return None, None
    file = next((place for place in places(location, path) if place.exists()), None)
    if file is None:
        raise FedfuseError(
            f"there is no {path}: give a parquet or CSV file, a folder of images, or a data source's name"
        )
    return (file, column or None) if file.is_file() else (None, None)


def _schema(file: Path) -> Any:
    from pyarrow import parquet  # type: ignore[import-untyped, unused-ignore]

    if file.suffix == ".csv":
        return read_table(file).schema
    with _reading(file):
        return parquet.read_schema(file)


def _read_columns(file: Path, columns: list[str]) -> Any:
    from pyarrow import parquet

    with _reading(file):
        table = parquet.read_table(file, columns=columns)
        table.validate(full=True)  # texts that are not UTF-8
    return table


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, NotImplementedError) as error:  # pyarrow's own errors are of these kinds
        reason = str(error).strip().partition("\n")[0]
        raise FedfuseError(f"{file}: not a parquet file that can be read ({reason}): replace it") from error


def _image_column(schema: Any) -> str | None:
    """Return the column that holds encoded images: {bytes, path}, as the `datasets` library writes them."""
    from pyarrow import types

    return next((f.name for f in schema if types.is_struct(f.type) and f.type.get_field_index("bytes") >= 0), None)


def _text_column(name: str, schema: Any, wanted: str | None) -> str:
    from pyarrow import types

    columns = [f.name for f in schema if types.is_string(f.type) or types.is_large_string(f.type)]
    for candidate in TEXT if wanted is None else (wanted,):
        if candidate in columns:
            return candidate
    has = ", ".join(schema.names) or "no columns"
    if wanted is not None:
        raise FedfuseError(f"{name}: {wanted} is no column of texts, the file has {has}: name another")
    if columns:
        raise FedfuseError(f"{name} has no column text, but {has}: name one, as in {name}{COLUMN}{columns[0]}")
    raise FedfuseError(f"{name} has only {has}, and no inputs: give a file with a column of images or texts")


def _texts(name: str, file: Path, column: str, *, labeled: bool) -> Texts:
    from pyarrow import compute, types

    table = read_table(file, [column])
    label = next((c for c in LABELS if c in table.column_names), None) if labeled else None
    if not len(table):
        raise FedfuseError(f"{name} is empty: give a file with examples")
    texts = strings_of(name, table[column], column)
    if label is None:
        return Texts(name, texts, None)
    cells = table[label]
    if types.is_string(cells.type) and not cells.null_count:  # names of classes
        names = compute.unique(cells).sort()
        y = compute.index_in(cells, names).to_numpy()
        return Texts(name, texts, torch.tensor(y).long(), tuple(names.to_pylist()))
    if not types.is_integer(cells.type) or cells.null_count:
        raise FedfuseError(f"{name}: {label} holds other things than whole numbers: number the classes from 0")
    return Texts(name, texts, torch.tensor(cells.to_numpy()).long())


def _unlabeled_images(name: str, file: Path, column: str) -> Numbers:
    cells = _read_columns(file, [column])[column].to_pylist()
    encoded = [cell and (cell["bytes"] or cell.get("path")) for cell in cells]
    if not encoded:
        raise FedfuseError(f"{name} is empty: give a file with examples")
    x = decode(encoded, None, lambda fraction: None)
    mean, std = channel_statistics(x)
    return Numbers(name, x, None, None, tuple(mean.tolist()), tuple(std.tolist()))


def _of_source(name: str, source: Source, split: str) -> Raw:
    examples, labeled = source.train if split == "train" else source.test, split == "test"
    if examples.texts is None:
        return _from_examples(name, examples, source, labeled=labeled)
    if examples.texts.pairs:
        raise FedfuseError(f"{name} holds pairs of texts: choose data with one text per example")
    texts = list(examples.texts.strings(torch.arange(len(examples))))
    return Texts(name, texts, examples.y if labeled else None, source.labels)


def _from_examples(name: str, examples: Examples, source: Source, *, labeled: bool) -> Numbers:
    mean, std = tuple(examples.mean.tolist()), tuple(examples.std.tolist())
    return Numbers(name, examples.tensor, examples.y if labeled else None, source.labels, mean, std)


def _whole(name: str, source: Source, *, labeled: bool) -> Numbers:
    """All examples of a single file, of which a source holds some out."""
    both = (source.train, source.test)
    examples = Examples(
        torch.cat([part.tensor for part in both]), torch.cat([part.y for part in both]), source.train.classes,
        source.train.mean, source.train.std,
    )  # fmt: skip
    return _from_examples(name, examples, source, labeled=labeled)
