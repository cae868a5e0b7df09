"""Matching the neurons of one layer over clients (PFNM, Yurochkin et al. 2019; BBP-MAP in FedMA, Wang et al. 2020).

Model: there are global neurons theta_i ~ N(0, sigma0^2); client j has some of them, w_jl ~ N(theta_i, sigma^2); which
ones is drawn from the Indian buffet process with mass gamma. Given the assignments of the other clients, the most
probable one of a client is a linear sum assignment, which is solved for one client after another.
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

    sweeps: how often every client is matched again, after all have been matched once. growth: the widest that a layer
    may become, as a multiple of its width at the clients. estimate: a global neuron is the mean of those matched to it,
    or their posterior mean, which the prior pulls towards zero.
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
            raise FedfuseError(f"fedma(growth={self.growth}): growth must be at least 1; with 1 no layer grows")

    def scores(self, rows: Tensor, sums: Tensor, counts: Tensor, clients: int, room: int) -> Tensor:
        """Return twice the log posterior of every placement, up to a constant: (L, G + room).

        rows: one client's neurons (L, D). sums (G, D) and counts (G,): of the others' neurons at each global one.
        clients: K, including this one. room: the most new global neurons, one for each of the last columns.
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
        """Return the place of each client's neurons [(L,)] and the global neurons (G, D), most shared first.

        clients: the rows (L, D) of each, in an order that does not depend on arrival.
        """
        # Imported here, because it would cost every process of a federation half a second.
        from scipy.optimize import linear_sum_assignment

        most = int(self.growth * max(map(len, clients)))
        places: list[Tensor] = []
        sums, counts = torch.zeros(0, clients[0].shape[1]).double(), torch.zeros(0).double()
        for sweep in range(self.sweeps + 1):
            for j, rows in enumerate(map(Tensor.double, clients)):
                if sweep:  # remove client j, and neurons that only it had
                    sums, counts = _add(sums, counts, places[j], -rows, -1)
                    shared = counts > 0
                    sums, counts, number = sums[shared], counts[shared], shared.cumsum(0) - 1
                    places = [number[place] for place in places]
                room = min(len(rows), most - len(counts))
                scores = self.scores(rows, sums, counts, len(clients), room)
                place = torch.from_numpy(linear_sum_assignment(scores.numpy(), maximize=True)[1])
                new = place >= len(counts)
                place[new] = len(counts) + torch.arange(int(new.sum()))
                sums, counts = _add(_pad(sums, int(new.sum())), _pad(counts, int(new.sum())), place, rows, 1)
                places[j:] = [place, *places[j + 1 :]]
        rank = counts.argsort(descending=True, stable=True).argsort()
        places = [rank[place] for place in places]
        return places, self._estimate(clients, places, len(counts))

    def _estimate(self, clients: Sequence[Tensor], places: Sequence[Tensor], width: int) -> Tensor:
        sums, counts = torch.zeros(width, clients[0].shape[1]).double(), torch.zeros(width).double()
        for rows, place in zip(clients, places, strict=True):
            sums, counts = _add(sums, counts, place, rows.double(), 1)
        ridge = (self.sigma / self.sigma0) ** 2 if self.estimate == "posterior" else 0.0
        return (sums / (counts + ridge)[:, None]).to(clients[0].dtype)


def _add(sums: Tensor, counts: Tensor, place: Tensor, rows: Tensor, sign: int) -> tuple[Tensor, Tensor]:
    return sums.index_add(0, place, rows), counts.index_add(0, place, counts.new_full((len(place),), sign))


def _pad(tensor: Tensor, by: int) -> Tensor:
    return torch.cat([tensor, tensor.new_zeros(by, *tensor.shape[1:])])


def neurons(params: Tensors, weight: str, bias: str, below: Tensor | None, width: int) -> Tensor:
    """Return one layer of a client as rows (L, D), with its inputs at their places in the global layer below."""
    inputs = params[weight] if below is None else spread(by_unit(params[weight], len(below)), below, width)
    return torch.cat([inputs.flatten(1), params[bias][:, None]], 1)


def by_class(heads: Sequence[Tensor], examples: Sequence[int], shares: Sequence[Tensor]) -> Tensor:
    """Return the mean of output layers (C, D), each class weighted by the clients' examples of it, shares (C,) of all.

    A class that no client has is weighted by all their examples.
    """
    total = torch.tensor(examples).double()[:, None]  # (K, 1)
    weights = total * torch.stack(list(shares)).double()  # (K, C)
    weights = torch.where(weights.sum(0) > 0, weights, total)
    return torch.einsum("kc,kcd->cd", weights / weights.sum(0), torch.stack(list(heads)).double()).to(heads[0].dtype)
