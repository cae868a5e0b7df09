"""Seeded hold-outs: choose the rows that are set aside."""

from __future__ import annotations

import torch
from torch import Tensor

from fedfuse.types import FedfuseError


def amount(size: float, total: int, what: str) -> int:
    """The number of examples that `size` means: a fraction of `total` if below 1, else a number."""
    number = round(size * total) if size < 1 else int(size)
    if not 0 <= number <= total:
        raise FedfuseError(
            f"{what} asks for {size:,.10g} of {total:,} examples: give a fraction below 1 or at most {total:,}"
        )
    return number


def plain(total: int, number: int, rng: torch.Generator, first: int | None = None) -> tuple[Tensor, Tensor]:
    """The remaining rows and the `number` rows held out, of `total`, each sorted; with `first`, only so many of these.

    Which rows remain does not depend on `first`, and fewer rows are among more.
    """
    order = torch.randperm(total, generator=rng)
    return order[number:].sort().values, order[: number if first is None else first].sort().values


def stratified(y: Tensor, number: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Like `plain`, with every class held out in proportion (to within one example; largest remainders first)."""
    if len(y) == 0:
        return plain(0, 0, rng)
    totals = torch.bincount(y)
    exact = totals.double() * number / len(y)
    quota = exact.floor().long()
    largest = torch.argsort(exact - quota, descending=True, stable=True)[: number - int(quota.sum())]
    quota[largest] += 1
    permutation = torch.randperm(len(y), generator=rng)
    order = permutation[torch.argsort(y[permutation], stable=True)]  # by class, shuffled within it
    starts = totals.cumsum(0) - totals
    rank = torch.arange(len(y)) - starts.repeat_interleave(totals)
    mask = rank < quota.repeat_interleave(totals)
    return order[~mask].sort().values, order[mask].sort().values
