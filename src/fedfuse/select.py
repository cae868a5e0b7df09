"""Which clients take part in a round."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Selection = Literal["uniform", "proportional"]


def select(sizes: Tensor, cohort: int, how: Selection, rng: torch.Generator) -> list[int]:
    """Draw `cohort` different clients, in ascending order.

    sizes: Tensor  # (K,) examples of each client
    `uniform`: all clients are equally likely. `proportional`: drawn one after the other in proportion to size, without
    replacement (Fed-ET samples by size; a client drawn twice would have its one update counted twice).
    """
    clients = len(sizes)
    if how == "uniform":
        numbers = torch.randperm(clients, generator=rng)[:cohort]
    else:
        numbers = torch.multinomial(sizes.double(), cohort, replacement=False, generator=rng)
    return sorted(numbers.tolist())


def cohort_size(clients: int, fraction: float) -> int:
    """Return this fraction of the clients, rounded to the nearest and at least 1."""
    return max(1, round(fraction * clients))
