"""How far two data sets are from each other: the error of a classifier that tells their examples apart.

Ben-David, Blitzer, Crammer, Pereira: Analysis of Representations for Domain Adaptation. NeurIPS 2006. The proxy
A-distance is 2 (1 - 2 err), where err is the classifier's error on examples that it was not trained on: 0 if it can
only guess, 2 if it is always right. The classifier is kernel ridge regression of the labels -1 and 1, so it has a
closed form, nothing to tune by hand, and works for images, features and bags of tokens alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedfuse import rng
from fedfuse.compute.batches import MASK, Batch, copy_rows
from fedfuse.data.examples import Examples
from fedfuse.data.federation import Federation

IDS = "input_ids"  # the token ids of a mapping, whatever else it has
MOST = 500  # examples of each side
FOLDS = 5
FEWEST = 2 * FOLDS  # examples of each side: with fewer, a fold of held-out ones would hold one or none
RIDGE = 1e-2  # times the number of training examples


@dataclass(frozen=True)
class ClientDiscrepancies:
    """The proxy A-distances of the clients' data, to a pool and to the data of all other clients.

    Each is computed once and cached. It is None if one of the two sides has too few examples.
    """

    data: Federation
    seed: int
    _cache: dict[tuple[int, int], float | None] = field(default_factory=dict, repr=False, compare=False)

    def to_pool(self, client: int, pool: Examples, round: int = 0) -> float | None:
        """Return the distance to this pool. `round` is that of the pool, if each round has its own."""
        if (client, round) not in self._cache:
            theirs = torch.arange(len(pool))
            self._cache[client, round] = self._distance(client, pool, theirs, "pool", round)
        return self._cache[client, round]

    def to_others(self, client: int) -> float | None:
        """Return the distance to the data of all other clients together."""
        if (client, -1) not in self._cache:
            others = [part for k, part in enumerate(self.data.parts) if k != client]
            rows = torch.cat([torch.zeros(0, dtype=torch.int64), *others])
            self._cache[client, -1] = self._distance(client, self.data.train, rows, "others", 0)
        return self._cache[client, -1]

    def _distance(self, client: int, theirs: Examples, rows: Tensor, what: str, round: int) -> float | None:
        draw = rng.generator(self.seed, f"discrepancy to {what}", client, round)
        own = self.data.parts[client]
        size = min(MOST, len(own), len(rows))
        if size < FEWEST:
            return None
        own, rows = (each[torch.randperm(len(each), generator=draw)[:size]] for each in (own, rows))
        return proxy_distance(*features(_inputs(self.data.train, own), _inputs(theirs, rows)))


def _inputs(examples: Examples, rows: Tensor) -> Batch:
    """Return the inputs at `rows` (n,) as nets take them, but with all padding."""
    return examples.batch(rows) if isinstance(examples.x, Tensor) else copy_rows(examples.x, rows)


def features(ours: Batch, theirs: Batch) -> tuple[Tensor, Tensor]:
    """Return both batches as vectors (n, F) of the same features: of token ids, how often each occurs in a text."""
    if isinstance(ours, Tensor) and isinstance(theirs, Tensor):
        return ours.flatten(1), theirs.flatten(1)
    assert not isinstance(ours, Tensor)
    assert not isinstance(theirs, Tensor)
    ids = [name for name, t in ours.items() if name != MASK and not t.is_floating_point() and MASK in ours]
    if not ids:
        first, second = (torch.cat([t.flatten(1).float() for t in batch.values()], 1) for batch in (ours, theirs))
        return first, second
    name = IDS if IDS in ids else ids[0]
    known = torch.unique(torch.cat([batch[name].long().flatten() for batch in (ours, theirs)]))
    first, second = (_bags(batch[name].long(), batch[MASK], known) for batch in (ours, theirs))
    return first, second


def _bags(ids: Tensor, mask: Tensor, known: Tensor) -> Tensor:
    """Count the ids (n, L) of each text that the mask (n, L) does not hide, for the ids `known` (F,), sorted.

    The vectors (n, F) have length 1.
    """
    places = torch.searchsorted(known, ids)
    counts = torch.zeros(len(ids), len(known)).scatter_add_(1, places, mask.to(torch.float32))
    return torch.nn.functional.normalize(counts, dim=1)


def proxy_distance(ours: Tensor, theirs: Tensor) -> float:
    """Return 2 (1 - 2 err), at least 0, for as many examples (n, F) of either side, in random order."""
    x, n = torch.cat([ours, theirs]).double(), len(ours)
    y = torch.cat([torch.ones(n), -torch.ones(len(theirs))]).double()
    lengths = x.square().sum(1)
    squares = (lengths[:, None] + lengths - 2 * x @ x.T).clamp(min=0)
    kernel = torch.exp(-squares / (float(squares.median()) or 1.0))  # Gaussian, as wide as the median distance
    fold = torch.cat([torch.arange(n), torch.arange(len(theirs))]) % FOLDS  # as many of either side in each
    wrong = 0.0
    for held_out in (fold == k for k in range(FOLDS)):
        seen = kernel[~held_out][:, ~held_out]
        weights = torch.linalg.solve(seen + RIDGE * len(seen) * torch.eye(len(seen)), y[~held_out])
        agreement = (kernel[held_out][:, ~held_out] @ weights) * y[held_out]
        wrong += float((agreement < 0).sum() + 0.5 * (agreement == 0).sum())
    return max(0.0, 2 * (1 - 2 * wrong / len(y)))
