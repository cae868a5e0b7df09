"""Which clients take part in a round."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Selection = Literal["uniform", "proportional"]


def select(sizes: Tensor, cohort: int, how: Selection, rng: torch.Generator) -> list[int]:
    """`cohort` different clients, in ascending order.

    sizes: Tensor  # (K,) examples of each client
    `uniform`: every client is as likely. `proportional`: drawn one after the other in proportion to size,
    without replacement (Fed-ET samples by size; a client twice in one round would be one update counted twice).
    """
    clients = len(sizes)
    if how == "uniform":
        drawn = torch.randperm(clients, generator=rng)[:cohort]
    else:
        drawn = torch.multinomial(sizes.double(), cohort, replacement=False, generator=rng)
    return sorted(drawn.tolist())


def cohort_size(clients: int, fraction: float) -> int:
    """A fraction of the clients as a count: rounded to the nearest, never none."""
    return max(1, round(fraction * clients))
