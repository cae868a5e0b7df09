"""Topologies: who is whose neighbour, among the clients whose predictions of the last round are there."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from fedfuse import bounds


class Topology(Protocol):
    def __call__(self, client: int, others: Sequence[int], rng: torch.Generator) -> list[int]:
        """Return the client's neighbours among `others`, in ascending order. `others` are ascending, without it."""


@dataclass(frozen=True)
class Ring:
    """The clients form a ring in the order of their numbers; neighbours are the `reach` next ones on either side."""

    reach: int = 1

    def __post_init__(self) -> None:
        bounds.positive(self, reach=self.reach)

    def __call__(self, client: int, others: Sequence[int], rng: torch.Generator) -> list[int]:
        if len(others) <= 2 * self.reach:
            return list(others)
        place = bisect_left(others, client)  # the client stands between others[place - 1] and others[place]
        return sorted(others[(place + step) % len(others)] for step in range(-self.reach, self.reach))


@dataclass(frozen=True)
class Complete:
    """Everyone is everyone's neighbour."""

    def __call__(self, client: int, others: Sequence[int], rng: torch.Generator) -> list[int]:
        return list(others)


@dataclass(frozen=True)
class RandomNeighbours:
    """Each client draws `count` neighbours in each round. Neighbours need not draw each other."""

    count: int = 2

    def __post_init__(self) -> None:
        bounds.positive(self, count=self.count)

    def __call__(self, client: int, others: Sequence[int], rng: torch.Generator) -> list[int]:
        return sorted(others[i] for i in torch.randperm(len(others), generator=rng)[: self.count].tolist())
