"""The data of a federation: one tensor of training data, each client's index into it, and the server's data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from fedfuse import rng
from fedfuse.data import arrays
from fedfuse.data.examples import Examples
from fedfuse.data.holdout import amount, stratified
from fedfuse.data.partition import Scheme, dirichlet, label_counts
from fedfuse.data.pool import Pool
from fedfuse.data.sources.source import Source
from fedfuse.notebook import table
from fedfuse.types import DamagedError, FedfuseError

CHUNK = 4096  # rows hashed at a time
SHOWN = 20  # clients, and classes, in a notebook's table


@dataclass(frozen=True, repr=False)
class Federation:
    """Client k has the rows `parts[k]` of `train`, without a copy. `train.batch(parts[k][rows])` is a batch."""

    train: Examples
    parts: tuple[Tensor, ...]  # (n_k,) int64 each: rows of train
    validation: Examples  # the server's; may be empty
    test: Examples
    pool: Examples | None
    labels: tuple[str, ...]
    tokenizer: str | None = None  # of texts: the content of its tokenizer.json; not saved, since texts are encoded
    # The true labels (N,) of a pool that is a split. Only the target `GroundTruth` uses them, at the server: they are
    # not written for other processes.
    pool_truth: Tensor | None = field(default=None, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.parts)

    def __repr__(self) -> str:
        return f"Federation({self._summary()})"

    def _repr_html_(self) -> str:
        columns = self.labels if len(self.labels) <= SHOWN else ()
        counts = self.counts.tolist()[:SHOWN]
        rows = [(k, self.sizes[k], *(each if columns else ())) for k, each in enumerate(counts)]
        rest = f"; the first {SHOWN} clients" if len(self) > SHOWN else ""
        return table(f"Federation: {self._summary()}{rest}", ("client", "examples", *columns), rows)

    def _summary(self) -> str:
        pool = "no pool" if self.pool is None else f"a pool of {len(self.pool):,}"
        return (
            f"{len(self)} clients with {sum(self.sizes):,} examples, {len(self.labels)} classes, shape "
            f"{self.train.shape}, {len(self.validation):,} for validation, {len(self.test):,} to test, {pool}"
        )

    def client(self, k: int) -> Tensor:
        """The rows (n_k,) of `train` that client k has."""
        if not 0 <= k < len(self.parts):
            raise FedfuseError(f"there is no client {k}: this federation has clients 0 to {len(self.parts) - 1}")
        return self.parts[k]

    @property
    def sizes(self) -> tuple[int, ...]:
        """n_k for each client."""
        return tuple(len(part) for part in self.parts)

    @cached_property
    def counts(self) -> Tensor:
        """(K, C): how many examples of each class each client has."""
        return label_counts(self.train.y, self.parts, len(self.labels))

    def client_means(self, column: str) -> Tensor:
        """The mean (K,) of a column over each client's examples, for example the client's capability."""
        if column not in self.train.columns:
            known = ", ".join(self.train.columns) or "none"
            raise FedfuseError(f"the data has no column {column!r}: choose from its columns ({known})")
        values = self.train.columns[column].double()
        return torch.stack([values[part].mean() for part in self.parts])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all examples, statistics and parts: federations with the same fingerprint train identically."""
        digest = hashlib.sha256()
        for name, tensor in self._tensors():
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            for chunk in torch.split(tensor, CHUNK):
                digest.update(chunk.contiguous().numpy().tobytes())
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Write .npy arrays and a manifest to `folder`, for `open`."""
        facts = {"labels": list(self.labels), "fingerprint": self.fingerprint, "pool": self.pool is not None}
        arrays.write(folder, dict(self._tensors()), facts)

    @staticmethod
    def open(folder: Path) -> Federation:
        """Open a folder that `save` wrote. It is memory-mapped, so processes that open it share its pages."""
        tensors, facts = arrays.read(folder, verify=False)  # just written by the process that started this one
        try:
            labels = tuple(facts["labels"])
            names = ["train", "validation", "test", *(["pool"] if facts["pool"] else [])]
            train, validation, test, *rest = (arrays.unpack(name, tensors, len(labels)) for name in names)
            parts = torch.split(tensors["parts"], tensors["sizes"].tolist())
        except (KeyError, RuntimeError) as error:
            raise DamagedError(f"{folder} is an incomplete federation ({error}): save it again") from error
        return Federation(train, tuple(parts), validation, test, rest[0] if rest else None, labels)

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        sets = {"train": self.train, "validation": self.validation, "test": self.test, "pool": self.pool}
        for name, examples in sets.items():
            if examples is not None:
                yield from arrays.pack(name, examples).items()
        yield "parts", torch.cat(self.parts)
        yield "sizes", torch.tensor(self.sizes)


def federate(
    source: Source,
    *,
    clients: int,
    scheme: Scheme = dirichlet,
    pool: Pool | None = None,
    validation: float = 0.1,
    keep: float = 1.0,
    seed: int = 0,
) -> Federation:
    """Split `source`: validation data for the server, then the pool, then the rest over `clients` clients.

    Each client keeps the share `keep` of its part; nobody has the others.

    `validation` (a number, or a fraction below 1; 0 for none) is a stratified hold-out. `scheme` and `pool` are
    functions as in SCHEMES and POOLS, with their settings bound: `partial(dirichlet, alpha=1.0)`,
    `partial(split, location=Location(), size=0.2)`.
    """
    number = amount(validation, len(source.train), "data.validation")
    train_rows, validation_rows = stratified(source.train.y, number, rng.generator(seed, "validation"))
    rest = source.train.subset(train_rows) if number else source.train
    public = truth = None
    if pool is not None:
        result = pool(rest, rng.generator(seed, "pool"))
        public, truth = result.pool, result.truth
        rest = rest if result.rest is None else rest.subset(result.rest)
    parts = tuple(scheme(rest, clients, rng.generator(seed, "partition")))
    if keep != 1:
        parts = tuple(_kept(part, rest.y, keep, rng.generator(seed, "keep", k)) for k, part in enumerate(parts))
    return Federation(
        rest, parts, source.train.subset(validation_rows), source.test, public, source.labels, pool_truth=truth
    )


def _kept(part: Tensor, y: Tensor, keep: float, draw: torch.Generator) -> Tensor:
    """A random share of a client's rows (n,), sorted, of every class in proportion; at least one row."""
    if not 0 < keep <= 1:
        raise FedfuseError(
            f"partition.keep = {keep:g}: give the share of its data that a client keeps, above 0, up to 1"
        )
    number = max(1, round(keep * len(part)))
    return part[stratified(y[part], number, draw)[1]]
