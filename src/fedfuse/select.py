"""Which clients take part in a round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Selection = Literal["uniform", "proportional"]


def select(
    sizes: Tensor, cohort: int, how: Selection, rng: torch.Generator, present: Sequence[int] | None = None
) -> list[int]:
    """Draw `cohort` different clients, in ascending order.

    sizes: Tensor  # (K,) examples of each client
    present: those that can be drawn, in ascending order; by default all.
    `uniform`: all clients are equally likely. `proportional`: drawn one after the other in proportion to size, without
    replacement (Fed-ET samples by size; a client drawn twice would have its one update counted twice).
    """
    clients = range(len(sizes)) if present is None else present
    if not clients:
        return []
    if how == "uniform":
        places = torch.randperm(len(clients), generator=rng)[:cohort]
    else:
        places = torch.multinomial(sizes[list(clients)].double(), cohort, replacement=False, generator=rng)
    return sorted(clients[place] for place in places.tolist())


def cohort_size(clients: int, fraction: float) -> int:
    """Return this fraction of the clients, rounded to the nearest and at least 1."""
    return max(1, round(fraction * clients))
