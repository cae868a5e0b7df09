"""The server's public data: unlabeled examples that models are fused on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fedfuse.data.augment import augmentation
from fedfuse.data.examples import Examples
from fedfuse.data.generators.sampling import frozen, generated
from fedfuse.data.holdout import amount, plain
from fedfuse.data.partition import column_of
from fedfuse.data.sources import load_from, source_function
from fedfuse.data.sources.hub import files_or_hub
from fedfuse.data.sources.location import Location
from fedfuse.data.sources.source import Source
from fedfuse.data.statistics import channel_statistics
from fedfuse.data.texts.store import ROWS
from fedfuse.types import FedfuseError

CHUNK = 1024
LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, as in Pillow's conversion to grey


@dataclass(frozen=True)
class Pooled:
    """A pool, and the rows (n,) of the training data that remain if the pool was taken from it.

    `truth` (N,) are the true labels of a pool that was taken from labeled data. They are never part of `pool`.
    """

    pool: Examples
    rest: Tensor | None = None
    truth: Tensor | None = None


Pool = Callable[[Examples, torch.Generator], Pooled]


def split(
    train: Examples,
    rng: torch.Generator,
    location: Location,
    *,
    size: float = 0.2,
    use: float | None = None,
    augment: str = "none",
    column: str | None = None,
) -> Pooled:
    """A random part of the training data, which is removed from the clients' data.

    `size` is a number, or a fraction below 1. With `use`, the pool is only the first so many of the examples that are
    removed, or that fraction of them: the clients' data does not depend on it (FedBE, Figure 4). With `column`, whole
    users, values of that column, are held out until they have that many examples (Fed-ET, Sent140). `augment` is
    applied once, so that the pool differs more from the clients' data, as Fed-ET's public data does.
    """
    number = amount(size, len(train), "data.pool.size")
    used = None if use is None else amount(use, number, "data.pool.use")
    if column is not None and used is not None:
        raise FedfuseError(
            "data.pool.use takes single examples, and data.pool.column whole users: leave one of them out"
        )
    rest, rows = plain(len(train), number, rng, used) if column is None else _users(train, column, number, rng)
    pool = _unlabeled(train.subset(rows))
    return Pooled(pool if augment == "none" else _augment(pool, augment, rng), rest, train.y[rows])


def _users(train: Examples, column: str, number: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """The remaining rows, and the rows of random users who together have at least `number` examples."""
    users, user, sizes = torch.unique(column_of(train, column, "pool split"), return_inverse=True, return_counts=True)
    order = torch.randperm(len(users), generator=rng)
    before = sizes[order].cumsum(0) - sizes[order]
    held = torch.zeros(len(users), dtype=torch.bool).index_fill_(0, order[before < number], True)[user]
    if bool(held.all()):
        raise FedfuseError(
            f"pool split: {number:,} of {len(train):,} examples would take all {len(users)} users of {column!r}: lower "
            "data.pool.size"
        )
    return (~held).nonzero().squeeze(1), held.nonzero().squeeze(1)


def _augment(pool: Examples, augment: str, rng: torch.Generator) -> Examples:
    change = augmentation(augment, pool.shape)
    return replace(pool, x=torch.cat([change(chunk, rng) for chunk in torch.split(pool.tensor, CHUNK)]))


def source(
    train: Examples,
    rng: torch.Generator,
    location: Location,
    *,
    name: str,
    size: float | None = None,
    classes: tuple[str | int, ...] | None = None,
    without: tuple[str | int, ...] = (),
    arguments: dict[str, object] | None = None,
) -> Pooled:
    """Training images, texts or features of another data set, by name; images are resized to fit.

    Images are normalised by their own statistics, tables by those of the training data; texts are encoded by the
    experiment's tokenizer. `classes` keeps only these classes and `without` drops classes, by name or number. `size` (a
    number, or a fraction below 1) then draws from the rest. `arguments` are the settings of that data set.
    """
    other = load_from(location, name, arguments or {}, labeled=False)
    rows = _of_classes(other, name, classes, without)
    if size is not None:
        rows = rows[plain(len(rows), amount(size, len(rows), f"pool {name}: data.pool.size"), rng)[1]]
    if train.texts is not None:
        return Pooled(_texts(other, rows, train, name))
    x = fit(other.train.tensor, rows, train, f"pool {name}")
    # Columns of a table mean the same in both, and one-hot ones are not standardised.
    table = x.dim() == 2 and source_function(name, location) is files_or_hub
    mean, std = (train.mean, train.std) if table else channel_statistics(x)
    return Pooled(Examples(x, torch.zeros(len(x), dtype=torch.int64), train.classes, mean, std))


def _texts(other: Source, rows: Tensor, train: Examples, name: str) -> Examples:
    texts = other.train.texts
    if texts is None or train.texts is None or texts.pairs != train.texts.pairs:
        wanted = "pairs of texts" if train.texts is not None and train.texts.pairs else "texts"
        raise FedfuseError(f"pool {name}: the training data has {wanted}, and the pool has none: choose another pool")
    x = {ROWS: torch.arange(len(rows))}
    y = torch.zeros(len(rows), dtype=torch.int64)
    return Examples(x, y, train.classes, train.mean, train.std, texts=texts.select(rows))


def noise(train: Examples, rng: torch.Generator, location: Location, *, size: int = 10_000) -> Pooled:
    """Uniform random inputs: independent pixels, or points in the bounding box of the training features."""
    y = torch.zeros(size, dtype=torch.int64)
    shape = (size, *train.tensor.shape[1:])
    if train.tensor.dtype == torch.uint8:
        x = torch.randint(256, shape, dtype=torch.uint8, generator=rng)
        mean, std = channel_statistics(x)
        return Pooled(Examples(x, y, train.classes, mean, std))
    low, high = train.tensor.amin(0), train.tensor.amax(0)
    # Normalise like the training data, so that the points stay in the range that the models were trained on.
    x = torch.rand(shape, generator=rng).mul_(high - low).add_(low)
    return Pooled(Examples(x, y, train.classes, train.mean, train.std))


def generator(
    train: Examples,
    rng: torch.Generator,
    location: Location,
    *,
    generator: str,
    latent: int | None = None,
    size: int = 10_000,
    fresh: bool = False,
) -> Pooled:
    """Samples from a frozen generator: a file from `fedfuse generator train`, or package.module:factory.

    Images are resized to fit and normalised by their own statistics. `latent` is for a module without that attribute.
    With `fresh`, `Context.pool` calls this again in each round. The first draw is then for `check`, and its fingerprint
    prevents a run from being resumed with another generator.
    """
    samples = generated(frozen(generator, latent), size, rng, images=train.tensor.dtype == torch.uint8)
    x = fit(samples, torch.arange(size), train, f"pool {generator}")
    mean, std = channel_statistics(x)
    return Pooled(Examples(x, torch.zeros(size, dtype=torch.int64), train.classes, mean, std))


POOLS: Mapping[str, Callable[..., Pooled]] = {
    "split": split,
    "source": source,
    "noise": noise,
    "generator": generator,
}


def fit(x: Tensor, rows: Tensor, like: Examples, what: str) -> Tensor:
    """x[rows] (n, C, H, W) as images like `like`: resized with antialiasing, colour to grey by luma, grey repeated."""
    if x.dtype != like.tensor.dtype or (x.dtype != torch.uint8 and x.shape[1:] != like.tensor.shape[1:]):
        raise FedfuseError(
            f"{what}: its examples are {x.dtype} {tuple(x.shape[1:])}, but the training data is {like.tensor.dtype} "
            f"{like.shape}: only images are converted; choose a pool of the same dtype and shape"
        )
    if x.shape[1:] == like.tensor.shape[1:]:
        return x[rows]
    channels, height, width = like.shape
    out = torch.empty(len(rows), channels, height, width, dtype=torch.uint8)
    for target, chunk in zip(torch.split(out, CHUNK), torch.split(rows, CHUNK), strict=True):
        images = _channels(x[chunk].float(), channels, what)
        if images.shape[2:] != target.shape[2:]:
            images = F.interpolate(images, (height, width), mode="bilinear", align_corners=False, antialias=True)
        target.copy_(images.round_().clamp_(0, 255))
    return out


def _channels(x: Tensor, wanted: int, what: str) -> Tensor:
    have = x.shape[1]
    if have == wanted:
        return x
    if have == 1:
        return x.repeat(1, wanted, 1, 1)
    if (have, wanted) == (3, 1):
        return (x * torch.tensor(LUMA).view(1, 3, 1, 1)).sum(1, keepdim=True)
    raise FedfuseError(
        f"{what}: images of {have} channels cannot be converted to {wanted}: use images of {wanted} channels"
    )


def _of_classes(
    other: Source, name: str, classes: tuple[str | int, ...] | None, without: tuple[str | int, ...]
) -> Tensor:
    """The rows (n,) of the other source's training data whose class is selected."""
    selected = torch.full((len(other.labels),), classes is None)
    selected[[_number(other, name, c) for c in classes or ()]] = True
    selected[[_number(other, name, c) for c in without]] = False
    return selected[other.train.y].nonzero().squeeze(1)


def _number(other: Source, name: str, label: str | int) -> int:
    if isinstance(label, int) and 0 <= label < len(other.labels):
        return label
    if label in other.labels:
        return other.labels.index(str(label))
    raise FedfuseError(
        f"pool {name} has no class {label!r}: it has {', '.join(other.labels[:12])}"
        f"{' ...' if len(other.labels) > 12 else ''}"
    )


def _unlabeled(examples: Examples) -> Examples:
    return replace(examples, y=torch.zeros_like(examples.y), columns={})
