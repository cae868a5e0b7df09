"""Partition schemes: which client has which examples. A scheme returns one sorted index (n_k,) per client.

The indices are disjoint and cover all examples; only `by_column` may leave some out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfuse import bounds
from fedfuse.data.examples import Examples
from fedfuse.types import FedfuseError

Scheme = Callable[[Examples, int, torch.Generator], Sequence[Tensor]]
Array = np.ndarray[Any, Any]

GROUP = 10  # clients that share one draw in FedDF's released code


def iid(examples: Examples, clients: int, rng: torch.Generator) -> list[Tensor]:
    """Random parts of equal size."""
    _enough(examples, clients, 1)
    order = torch.randperm(len(examples), generator=rng)
    return [part.sort().values for part in order.tensor_split(clients)]


def dirichlet(
    examples: Examples,
    clients: int,
    rng: torch.Generator,
    *,
    alpha: float = 0.1,
    min_size: int = 10,
    tries: int = 1000,
) -> list[Tensor]:
    """Distribute each class by its own Dirichlet(alpha) draw over the clients (FedBE, section 5.2).

    A small alpha gives few classes per client, and unequal sizes. Redraw until every client has `min_size` examples,
    at most `tries` times.
    """
    _enough(examples, clients, min_size)
    bounds.positive("dirichlet", alpha=alpha)
    draw = _numpy(rng)
    totals = _totals(examples)
    best = np.zeros((examples.classes, clients), int)
    for _ in range(tries):
        counts = _cut(draw.dirichlet(np.full(clients, alpha), examples.classes), totals)
        if counts.sum(0).min() > best.sum(0).min():
            best = counts
        if best.sum(0).min() >= min_size:
            return _assign(examples.y, best, draw)
    sizes = best.sum(0)
    raise FedfuseError(
        f"dirichlet: in {tries} draws with alpha {alpha:g}, client {sizes.argmin()} of {clients} got at most "
        f"{sizes.min()} examples, fewer than partition.min_size = {min_size}: raise partition.alpha, lower "
        "partition.min_size or partition.clients, or use dirichlet-prior or dirichlet-recut, whose clients have equal "
        "sizes"
    )


def dirichlet_prior(examples: Examples, clients: int, rng: torch.Generator, *, alpha: float = 0.1) -> list[Tensor]:
    """Draw a class prior q ~ Dirichlet(alpha p) per client, then its examples by q (FedDF, C.2; Hsu et al.).

    p is the class distribution of the data, so alpha is the *sum* of the concentrations, as in the papers:
    Dirichlet(a, ..., a) is alpha = a x classes. All sizes are equal (to within one). Sampling is without
    replacement: when a class runs out, q is renormalised over the others, so late clients get what remains.
    """
    _enough(examples, clients, 1)
    bounds.positive("dirichlet-prior", alpha=alpha)
    draw = _numpy(rng)
    remaining = _totals(examples)
    present = remaining > 0
    priors = np.zeros((clients, examples.classes))
    priors[:, present] = draw.dirichlet(alpha * remaining[present] / remaining.sum(), clients)
    sizes = _even(len(examples), clients)
    counts = np.zeros((examples.classes, clients), int)
    for client in range(clients):
        counts[:, client] = _sample(priors[client], sizes[client], remaining, draw)
        remaining = remaining - counts[:, client]
    return _assign(examples.y, counts, draw)


def _sample(prior: Array, size: int, remaining: Array, draw: np.random.Generator) -> Array:
    """The number (C,) of examples of each class in `size` draws from `prior`, which drops classes that run out."""
    counts = np.zeros_like(remaining)
    while (missing := size - counts.sum()) > 0:
        available = np.where(counts < remaining, prior, 0.0)
        # If all classes of the prior have run out, draw from the remaining examples.
        weight = available if available.sum() > 0 else remaining - counts
        counts = np.minimum(counts + draw.multinomial(missing, weight / weight.sum()), remaining)
    return counts


def dirichlet_recut(
    examples: Examples, clients: int, rng: torch.Generator, *, alpha: float = 0.1, tries: int = 10_000
) -> list[Tensor]:
    """The partition of FedDF's released code: equal sizes, and more classes per client than alpha suggests.

    Each group of 10 clients gets random examples. Within a group, Dirichlet(alpha) distributes each class over the
    clients that are still below the mean size, redrawn until the smallest has half of it. The concatenated parts are
    then cut again into equal chunks, so a chunk can span two parts.
    """
    _enough(examples, clients, 1)
    bounds.positive("dirichlet-recut", alpha=alpha)
    draw = _numpy(rng)
    y = examples.y.numpy()
    groups = [min(GROUP, clients - first) for first in range(0, clients, GROUP)]
    ends = np.cumsum(groups) * len(y) // clients
    pieces = [
        part
        for members, rows in zip(groups, np.split(draw.permutation(len(y)), ends[:-1]), strict=True)
        for part in _group(rows, y[rows], examples.classes, members, alpha, tries, draw)
    ]
    return [torch.from_numpy(np.sort(part)) for part in np.array_split(np.concatenate(pieces), clients)]


def _group(
    rows: Array, y: Array, classes: int, members: int, alpha: float, tries: int, draw: np.random.Generator
) -> list[Array]:
    """Distribute `rows` (n,) with labels y (n,) over `members` clients."""
    totals = np.bincount(y, minlength=classes)
    mean = len(rows) / members
    smallest = -1
    for _ in range(tries):
        counts = np.zeros((classes, members), int)
        for label, shares in enumerate(draw.dirichlet(np.full(members, alpha), classes)):
            below = counts.sum(0) < mean
            shares = shares * below if (shares * below).sum() > 0 else below / max(1, below.sum())
            counts[label] = _cut(shares[None] / max(shares.sum(), 1e-300), totals[label : label + 1])[0]
        smallest = max(smallest, counts.sum(0).min())
        if counts.sum(0).min() >= int(0.5 * mean):
            order = rows[np.argsort(y, kind="stable")]
            owner = np.repeat(np.tile(np.arange(members), classes), counts.ravel())
            return [order[owner == member] for member in range(members)]
    raise FedfuseError(
        f"dirichlet-recut: in {tries} draws with alpha {alpha:g}, the smallest of {members} clients got at most "
        f"{smallest} examples, fewer than {int(0.5 * mean)}, half the mean: raise partition.alpha, or use "
        "dirichlet-prior"
    )


def shards(examples: Examples, clients: int, rng: torch.Generator, *, per_client: int = 2) -> list[Tensor]:
    """Sort by label, cut into equal shards, and give each client `per_client` random ones (McMahan et al.)."""
    bounds.positive("shards", per_client=per_client)
    _enough(examples, clients, per_client)
    draw = _numpy(rng)
    permutation = draw.permutation(len(examples))
    order = permutation[np.argsort(examples.y.numpy()[permutation], kind="stable")]
    pieces = np.array_split(order, clients * per_client)
    numbers = draw.permutation(clients * per_client).reshape(clients, per_client)
    return [torch.from_numpy(np.sort(np.concatenate([pieces[shard] for shard in own]))) for own in numbers]


def step(examples: Examples, clients: int, rng: torch.Generator, *, major: int = 2, minor: float = 10) -> list[Tensor]:
    """Give each client many examples of `major` classes and `minor` of every other (FedBE, section 5.2).

    `minor` below 1 is a fraction of the class. Major classes are assigned in turn from random permutations, so each is
    major for equally many clients (to within one). These share equally what the minor examples leave. The partition is
    disjoint: FedBE's released one uses some images twice.
    """
    _enough(examples, clients, 1)
    if not 1 <= major <= examples.classes or clients * major < examples.classes:
        least = -(-examples.classes // clients)
        raise FedfuseError(
            f"step: {clients} clients with {major} major classes each cannot hold {examples.classes} classes: "
            f"partition.major must be from {least} to {examples.classes}, or change partition.clients"
        )
    draw = _numpy(rng)
    is_major = _assign_majors(clients, major, examples.classes, draw)  # (C, K)
    totals = _totals(examples)
    small = (totals * minor).astype(int) if minor < 1 else np.full(examples.classes, int(minor))
    counts = np.where(is_major, 0, small[:, None])
    rest = totals - counts.sum(1)
    holders = is_major.sum(1)
    for label in np.flatnonzero(rest < holders * np.maximum(1, small)):
        raise FedfuseError(
            f"step: class {label} has {totals[label]} examples; {clients - holders[label]} clients take "
            f"{small[label]} each as a minor class, which leaves too few for client "
            f"{is_major[label].argmax()}, whose major class it is: lower partition.minor or partition.clients"
        )
    rank = is_major.cumsum(1) - 1  # of a holder within its class: the first ones take the remainder
    counts += is_major * ((rest // holders)[:, None] + (rank < (rest % holders)[:, None]))
    return _assign(examples.y, counts, draw)


def _assign_majors(clients: int, major: int, classes: int, draw: np.random.Generator) -> Array:
    """(C, K) bool: which class is major for which client."""
    majors = np.zeros((classes, clients), bool)
    stack: list[int] = []
    for client in range(clients):
        for _ in range(major):
            if not stack:
                # The classes that this client already has are popped last, so it gets no class twice.
                stack = sorted(draw.permutation(classes).tolist(), key=lambda c: bool(majors[c, client]), reverse=True)
            majors[stack.pop(), client] = True
    return majors


def by_column(
    examples: Examples,
    clients: int,
    rng: torch.Generator,
    *,
    column: str = "user",
    least: int = 1,
    min_size: int = 1,
) -> list[Tensor]:
    """Each user, a value of a column, is a client. With fewer clients than users, a client is a random group of users.

    Users with fewer than `least` examples are left out (Fed-ET keeps Sent140 users with more than 100 tweets). Those
    with fewer than `min_size` are grouped at random until a group has it, and count as one user; a last group that is
    too small is left out. These are the only cases of an incomplete partition.
    """
    bounds.positive("column", min_size=min_size)
    users, user, sizes = np.unique(
        column_of(examples, column, "column").numpy(), return_inverse=True, return_counts=True
    )
    draw = _numpy(rng)
    group = _groups(sizes, least, min_size, draw)
    groups = int(group.max(initial=-1)) + 1
    if groups < clients:
        each = f"{least} or more examples" + (f", in groups of at least {min_size}" if min_size > least else "")
        lower = "partition.least" + (" or partition.min_size" if min_size > least else "")
        raise FedfuseError(
            f"column: {column!r} has {groups} users with {each} (of {len(users)}), so client {groups} of {clients} "
            f"would have none: use at most {groups} clients, or lower {lower}"
        )
    client = np.arange(clients) if groups == clients else draw.permutation(groups) % clients
    owner = np.append(client, clients)[group]  # group -1 is the last entry: `clients` marks what is left out
    return _collect(np.arange(len(examples)), owner[user], clients)


def column_of(examples: Examples, column: str, what: str) -> Tensor:
    """The column (N,) of the users."""
    if column not in examples.columns:
        raise FedfuseError(
            f"{what}: the data has no column {column!r}, it has {', '.join(examples.columns) or 'none'}: name the "
            "column of the users"
        )
    return examples.columns[column]


def _groups(sizes: Array, least: int, min_size: int, draw: np.random.Generator) -> Array:
    """The number (U,) of each user's group, or -1 for users that are left out. sizes (U,): examples of each user."""
    group = np.full(len(sizes), -1)
    alone = np.flatnonzero(sizes >= max(least, min_size))
    group[alone] = np.arange(len(alone))
    small = draw.permutation(np.flatnonzero((sizes >= least) & (sizes < min_size)))
    number, start, total = len(alone), 0, 0
    for place, size in enumerate(sizes[small].tolist(), 1):
        total += size
        if total >= min_size:
            group[small[start:place]] = number
            number, start, total = number + 1, place, 0
    return group


SCHEMES: Mapping[str, Callable[..., list[Tensor]]] = {
    "iid": iid,
    "dirichlet": dirichlet,
    "dirichlet-prior": dirichlet_prior,
    "dirichlet-recut": dirichlet_recut,
    "shards": shards,
    "step": step,
    "column": by_column,
}


def label_counts(y: Tensor, parts: Sequence[Tensor], classes: int) -> Tensor:
    """(K, C): how many examples of each class each client has."""
    owner = torch.arange(len(parts)).repeat_interleave(torch.tensor([len(part) for part in parts]))
    cell = owner * classes + y[torch.cat(list(parts))]
    return torch.bincount(cell, minlength=len(parts) * classes).view(len(parts), classes)


def label_entropy(counts: Tensor) -> Tensor:
    """counts (K, C) -> (K,): the entropy of each client's labels in nats, from 0 (one class) to log C."""
    share = counts.double() / counts.sum(1, keepdim=True).clamp(min=1)
    return -torch.xlogy(share, share).sum(1)


def _numpy(rng: torch.Generator) -> np.random.Generator:
    # torch draws Dirichlet samples from its global generator only.
    return np.random.Generator(np.random.PCG64(int(torch.randint(2**62, (), generator=rng))))


def _totals(examples: Examples) -> Array:
    return np.bincount(examples.y.numpy(), minlength=examples.classes)


def _even(total: int, clients: int) -> Array:
    return total // clients + (np.arange(clients) < total % clients)


def _cut(shares: Array, totals: Array) -> Array:
    """shares (C, K), rows summing to 1, and totals (C,) -> integer counts (C, K) with those totals."""
    ends = np.floor(np.cumsum(shares, 1) * totals[:, None] + 1e-9).astype(int)
    ends[:, -1] = totals
    return np.diff(np.minimum(ends, totals[:, None]), axis=1, prepend=0)


def _assign(y: Tensor, counts: Array, draw: np.random.Generator) -> list[Tensor]:
    """Assign random examples of each class to each client, with the numbers in counts (C, K)."""
    permutation = draw.permutation(len(y))
    order = permutation[np.argsort(y.numpy()[permutation], kind="stable")]
    clients = counts.shape[1]
    return _collect(order, np.repeat(np.tile(np.arange(clients), len(counts)), counts.ravel()), clients)


def _collect(rows: Array, owner: Array, clients: int) -> list[Tensor]:
    """Each client's rows, sorted. rows[i] belongs to client owner[i], or to none if that is `clients`."""
    sizes = np.bincount(owner, minlength=clients + 1)
    grouped = rows[np.lexsort((rows, owner))].astype(np.int64)
    return [torch.from_numpy(part) for part in np.split(grouped, np.cumsum(sizes)[:-1])[:clients]]


def _enough(examples: Examples, clients: int, each: int) -> None:
    if clients < 1:
        raise FedfuseError(f"partition.clients = {clients}: give at least 1")
    if each < 1:
        raise FedfuseError(f"partition.min_size = {each}: give at least 1")
    if len(examples) < clients * each:
        raise FedfuseError(
            f"{len(examples)} examples are too few for {clients} clients with {each} each: client "
            f"{len(examples) // each} would have fewer. Use fewer clients or more data"
        )
