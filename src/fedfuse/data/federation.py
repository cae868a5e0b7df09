"""A federation at rest: one tensor of training data, each client's index into it, and what the server holds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
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
from fedfuse.types import FedfuseError

CHUNK = 4096  # rows hashed at a time


@dataclass(frozen=True)
class Federation:
    """Clients' data is `train` seen through `parts`: no client has a copy. `train.batch(part[rows])` is a batch."""

    train: Examples
    parts: tuple[Tensor, ...]  # (n_k,) int64 each: rows of train
    validation: Examples  # the server's; may be empty
    test: Examples
    pool: Examples | None
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.parts)

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
        """The mean (K,) of a column of the data over each client's examples: its capability, for instance."""
        if column not in self.train.columns:
            known = ", ".join(self.train.columns) or "none"
            raise FedfuseError(f"the data has no column {column!r}, it has {known}")
        values = self.train.columns[column].double()
        return torch.stack([values[part].mean() for part in self.parts])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of every example, statistic and part: two federations with the same one train the same."""
        digest = hashlib.sha256()
        for name, tensor in self._tensors():
            if ".column." in name:
                continue  # columns only decide the parts, which are here themselves
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            for chunk in torch.split(tensor, CHUNK):
                digest.update(chunk.contiguous().numpy().tobytes())
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Write .npy arrays and a manifest, for `open`."""
        facts = {"labels": list(self.labels), "fingerprint": self.fingerprint, "pool": self.pool is not None}
        arrays.write(folder, dict(self._tensors()), facts)

    @staticmethod
    def open(folder: Path) -> Federation:
        """What `save` wrote, memory-mapped: processes that open the same folder share its pages."""
        stored, facts = arrays.read(folder)
        try:
            labels = tuple(facts["labels"])
            names = ["train", "validation", "test", *(["pool"] if facts["pool"] else [])]
            train, validation, test, *rest = (arrays.unpack(name, stored, len(labels)) for name in names)
            parts = torch.split(stored["parts"], stored["sizes"].tolist())
        except (KeyError, RuntimeError) as error:
            raise arrays.DamagedError(f"{folder} is not a whole federation ({error}): make it again") from error
        return Federation(train, tuple(parts), validation, test, rest[0] if rest else None, labels)

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        held = {"train": self.train, "validation": self.validation, "test": self.test, "pool": self.pool}
        for name, examples in held.items():
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
    seed: int = 0,
) -> Federation:
    """Share `source` out: validation for the server, then the pool, then the rest to `clients` clients.

    `validation` (a number, or a fraction below 1; 0 for none) is held out stratified. `scheme` and `pool` are
    functions of SCHEMES and POOLS, or like them, with their settings filled in: `partial(dirichlet, alpha=1.0)`,
    `partial(split, location=Location(), size=0.2)`.
    """
    number = amount(validation, len(source.train), "validation")
    kept, held = stratified(source.train.y, number, rng.generator(seed, "validation"))
    rest = source.train.subset(kept) if number else source.train
    public = None
    if pool is not None:
        pooled = pool(rest, rng.generator(seed, "pool"))
        public = pooled.pool
        rest = rest if pooled.rest is None else rest.subset(pooled.rest)
    parts = tuple(scheme(rest, clients, rng.generator(seed, "partition")))
    return Federation(rest, parts, source.train.subset(held), source.test, public, source.labels)
