"""Matching the neurons of one layer over clients (PFNM, Yurochkin et al. 2019; BBP-MAP in FedMA, Wang et al. 2020).

Model: there are global neurons theta_i ~ N(0, sigma0^2); client j has some of them, w_jl ~ N(theta_i, sigma^2); which
ones is drawn from the Indian buffet process with mass gamma. The assignment of one client, those of the others given,
that is most probable is a linear sum assignment; it is solved for one client after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Literal

import torch
from torch import Tensor

from fedfuse import bounds
from fedfuse.models.chain import by_unit, spread
from fedfuse.types import FedfuseError, Tensors


@dataclass(frozen=True)
class Matching:
    """BBP-MAP for one layer. A neuron is a row: its weights, in the order of the global layer below, and its bias.

    sweeps: how often every client is matched anew, after all have been placed once. growth: no layer becomes wider than
    this many times its width at the clients. estimate: a global neuron is the mean of those matched to it, or their
    posterior mean, which the prior pulls to zero.
    """

    sigma: float = 1.0
    sigma0: float = 1.0
    gamma: float = 7.0
    sweeps: int = 5
    growth: float = 1.5
    estimate: Literal["mean", "posterior"] = "mean"

    def __post_init__(self) -> None:
        bounds.positive("fedma", sigma=self.sigma, sigma0=self.sigma0, gamma=self.gamma)
        bounds.not_negative("fedma", sweeps=self.sweeps)
        if not self.growth >= 1:
            raise FedfuseError(f"fedma(growth={self.growth}): at least 1, with which no layer grows")

    def scores(self, rows: Tensor, sums: Tensor, counts: Tensor, clients: int, room: int) -> Tensor:
        """Twice the log posterior of every placement, up to a constant: (L, G + room).

        rows: one client's neurons (L, D). sums (G, D) and counts (G,): of the others' neurons at each global one.
        clients: K, with this one. room: how many new global neurons there may be; the k-th is the last columns' k-th.
        """
        own, prior = self.sigma**-2, self.sigma0**-2
        size, total = rows.square().sum(1, keepdim=True), sums.square().sum(1)
        after = size + 2 * rows @ sums.T + total
        fit = own**2 * (after / (prior + own * (counts + 1)) - total / (prior + own * counts))
        popular = 2 * (counts / (clients - counts)).log()
        alone = own**2 * size / (prior + own) + 2 * log(self.gamma / clients)
        order = 2 * torch.arange(1, room + 1, dtype=rows.dtype).log()
        return torch.cat([fit + popular, alone - order], 1)

    def __call__(self, clients: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """The place of each client's neurons [(L,)], and the global neurons (G, D), those that most share first.

        clients: the rows (L, D) of each, in an order that does not depend on who answered first.
        """
        # Imported where it is used: every process of a federation would pay half a second for it.
        from scipy.optimize import linear_sum_assignment

        most = int(self.growth * max(map(len, clients)))
        places: list[Tensor] = []
        sums, counts = torch.zeros(0, clients[0].shape[1]).double(), torch.zeros(0).double()
        for sweep in range(self.sweeps + 1):
            for j, rows in enumerate(map(Tensor.double, clients)):
                if sweep:  # without client j: neurons that were its alone go
                    sums, counts = _added(sums, counts, places[j], -rows, -1)
                    shared = counts > 0
                    sums, counts, number = sums[shared], counts[shared], shared.cumsum(0) - 1
                    places = [number[place] for place in places]
                room = min(len(rows), most - len(counts))
                scores = self.scores(rows, sums, counts, len(clients), room)
                place = torch.from_numpy(linear_sum_assignment(scores.numpy(), maximize=True)[1])
                new = place >= len(counts)
                place[new] = len(counts) + torch.arange(int(new.sum()))
                sums, counts = _added(_grown(sums, int(new.sum())), _grown(counts, int(new.sum())), place, rows, 1)
                places[j:] = [place, *places[j + 1 :]]
        rank = counts.argsort(descending=True, stable=True).argsort()
        places = [rank[place] for place in places]
        return places, self._estimated(clients, places, len(counts))

    def _estimated(self, clients: Sequence[Tensor], places: Sequence[Tensor], width: int) -> Tensor:
        sums, counts = torch.zeros(width, clients[0].shape[1]).double(), torch.zeros(width).double()
        for rows, place in zip(clients, places, strict=True):
            sums, counts = _added(sums, counts, place, rows.double(), 1)
        ridge = (self.sigma / self.sigma0) ** 2 if self.estimate == "posterior" else 0.0
        return (sums / (counts + ridge)[:, None]).to(clients[0].dtype)


def _added(sums: Tensor, counts: Tensor, place: Tensor, rows: Tensor, sign: int) -> tuple[Tensor, Tensor]:
    return sums.index_add(0, place, rows), counts.index_add(0, place, counts.new_full((len(place),), sign))


def _grown(tensor: Tensor, by: int) -> Tensor:
    return torch.cat([tensor, tensor.new_zeros(by, *tensor.shape[1:])])


def neurons(params: Tensors, weight: str, bias: str, below: Tensor | None, width: int) -> Tensor:
    """One layer of a client as rows (L, D), its inputs put at their places in the global layer below."""
    inputs = params[weight] if below is None else spread(by_unit(params[weight], len(below)), below, width)
    return torch.cat([inputs.flatten(1), params[bias][:, None]], 1)


def by_class(heads: Sequence[Tensor], examples: Sequence[int], shares: Sequence[Tensor]) -> Tensor:
    """The mean of output layers (C, D), class by class weighted by the clients' examples of it, a share (C,) of all.

    A class that no client has is weighted by all their examples.
    """
    total = torch.tensor(examples).double()[:, None]  # (K, 1)
    weights = total * torch.stack(list(shares)).double()  # (K, C)
    weights = torch.where(weights.sum(0) > 0, weights, total)
    return torch.einsum("kc,kcd->cd", weights / weights.sum(0), torch.stack(list(heads)).double()).to(heads[0].dtype)
