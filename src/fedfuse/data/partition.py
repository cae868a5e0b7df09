"""Who has which examples. Every scheme gives each client a sorted index (n_k,), disjoint from the others'.

Every example is with exactly one client; `by_column` alone may leave some out, and says when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfuse.data.examples import Examples
from fedfuse.types import FedfuseError

Scheme = Callable[[Examples, int, torch.Generator], Sequence[Tensor]]
Array = np.ndarray[Any, Any]

GROUP = 10  # clients that share one draw in FedDF's released code


def iid(examples: Examples, clients: int, rng: torch.Generator) -> list[Tensor]:
    """Equal random shares."""
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
    """Each class is shared out by its own Dirichlet(alpha) draw over the clients (FedBE, section 5.2).

    Small alpha: few classes per client, and unequal sizes. Redrawn until every client has `min_size` examples,
    at most `tries` times.
    """
    _enough(examples, clients, min_size)
    _positive("alpha", alpha)
    draw = _numpy(rng)
    totals = _totals(examples)
    best = np.zeros((examples.classes, clients), int)
    for _ in range(tries):
        counts = _cut(draw.dirichlet(np.full(clients, alpha), examples.classes), totals)
        if counts.sum(0).min() > best.sum(0).min():
            best = counts
        if best.sum(0).min() >= min_size:
            return _deal(examples.y, best, draw)
    sizes = best.sum(0)
    raise FedfuseError(
        f"dirichlet: in {tries} draws with alpha {alpha:g}, client {sizes.argmin()} of {clients} had at best "
        f"{sizes.min()} of the {min_size} examples that min_size asks for: raise alpha, have fewer clients, lower "
        "min_size, or use dirichlet-prior or dirichlet-recut, whose clients have equal sizes"
    )


def dirichlet_prior(examples: Examples, clients: int, rng: torch.Generator, *, alpha: float = 0.1) -> list[Tensor]:
    """Each client draws a class prior q ~ Dirichlet(alpha p), then its examples by q (FedDF, C.2; Hsu et al.).

    p is the data's own class distribution, so alpha is the *sum* of the concentrations, as the papers write it:
    Dirichlet(a, ..., a) is alpha = a x classes. All sizes are equal (to within one). Sampling is without
    replacement: where a class runs out, q is renormalised over the rest, so late clients take what is left.
    """
    _enough(examples, clients, 1)
    _positive("alpha", alpha)
    draw = _numpy(rng)
    left = _totals(examples)
    present = left > 0
    priors = np.zeros((clients, examples.classes))
    priors[:, present] = draw.dirichlet(alpha * left[present] / left.sum(), clients)
    sizes = _even(len(examples), clients)
    counts = np.zeros((examples.classes, clients), int)
    for client in range(clients):
        counts[:, client] = _sample(priors[client], sizes[client], left, draw)
        left = left - counts[:, client]
    return _deal(examples.y, counts, draw)


def _sample(prior: Array, size: int, left: Array, draw: np.random.Generator) -> Array:
    """How many (C,) of each class: `size` draws from `prior`, a class that runs out being struck from it."""
    taken = np.zeros_like(left)
    while (missing := size - taken.sum()) > 0:
        open_ = np.where(taken < left, prior, 0.0)
        weight = open_ if open_.sum() > 0 else left - taken  # every class it wanted is gone: what is left, as it is
        taken = np.minimum(taken + draw.multinomial(missing, weight / weight.sum()), left)
    return taken


def dirichlet_recut(
    examples: Examples, clients: int, rng: torch.Generator, *, alpha: float = 0.1, tries: int = 10_000
) -> list[Tensor]:
    """As FedDF's released code: equal sizes, and more classes per client than alpha suggests.

    Random groups of 10 clients; within a group each class is shared out by Dirichlet(alpha) among the members
    that have not yet their mean share, redrawn until the smallest has half of it. The shares in a row are then
    cut again into equal chunks, so a chunk can straddle two shares.
    """
    _enough(examples, clients, 1)
    _positive("alpha", alpha)
    draw = _numpy(rng)
    y = examples.y.numpy()
    groups = [min(GROUP, clients - first) for first in range(0, clients, GROUP)]
    ends = np.cumsum(groups) * len(y) // clients
    row = [
        part
        for members, rows in zip(groups, np.split(draw.permutation(len(y)), ends[:-1]), strict=True)
        for part in _group(rows, y[rows], examples.classes, members, alpha, tries, draw)
    ]
    return [torch.from_numpy(np.sort(part)) for part in np.array_split(np.concatenate(row), clients)]


def _group(
    rows: Array, y: Array, classes: int, members: int, alpha: float, tries: int, draw: np.random.Generator
) -> list[Array]:
    """`rows` (n,) with labels y (n,), shared out among `members` clients."""
    totals = np.bincount(y, minlength=classes)
    mean = len(rows) / members
    smallest = -1
    for _ in range(tries):
        counts = np.zeros((classes, members), int)
        for label, shares in enumerate(draw.dirichlet(np.full(members, alpha), classes)):
            wanting = counts.sum(0) < mean
            shares = shares * wanting if (shares * wanting).sum() > 0 else wanting / max(1, wanting.sum())
            counts[label] = _cut(shares[None] / max(shares.sum(), 1e-300), totals[label : label + 1])[0]
        smallest = max(smallest, counts.sum(0).min())
        if counts.sum(0).min() >= int(0.5 * mean):
            order = rows[np.argsort(y, kind="stable")]
            owner = np.repeat(np.tile(np.arange(members), classes), counts.ravel())
            return [order[owner == member] for member in range(members)]
    raise FedfuseError(
        f"dirichlet-recut: in {tries} draws with alpha {alpha:g}, the smallest of {members} clients had at best "
        f"{smallest} of {int(0.5 * mean)} examples, half the mean: raise alpha, or use dirichlet-prior"
    )


def shards(examples: Examples, clients: int, rng: torch.Generator, *, per_client: int = 2) -> list[Tensor]:
    """Sorted by label, cut into equal shards, `per_client` dealt to each client at random (McMahan et al.)."""
    _positive("per_client", per_client)
    _enough(examples, clients, per_client)
    draw = _numpy(rng)
    shuffled = draw.permutation(len(examples))
    order = shuffled[np.argsort(examples.y.numpy()[shuffled], kind="stable")]
    cut = np.array_split(order, clients * per_client)
    hands = draw.permutation(clients * per_client).reshape(clients, per_client)
    return [torch.from_numpy(np.sort(np.concatenate([cut[shard] for shard in hand]))) for hand in hands]


def step(examples: Examples, clients: int, rng: torch.Generator, *, major: int = 2, minor: float = 10) -> list[Tensor]:
    """Each client has `major` classes in quantity and `minor` examples of every other (FedBE, section 5.2).

    `minor` below 1 is a fraction of the class. Major classes are dealt in turn from shuffled decks, so each is
    major for equally many clients (to within one), who share equally what the minor holders leave. The split is
    disjoint: FedBE's released one uses some images twice.
    """
    _enough(examples, clients, 1)
    if not 1 <= major <= examples.classes or clients * major < examples.classes:
        least = -(-examples.classes // clients)
        raise FedfuseError(
            f"step: {clients} clients with {major} major classes each cannot hold {examples.classes} classes: "
            f"major must be from {least} to {examples.classes}, or change the number of clients"
        )
    draw = _numpy(rng)
    held = _deal_majors(clients, major, examples.classes, draw)  # (C, K)
    totals = _totals(examples)
    small = (totals * minor).astype(int) if minor < 1 else np.full(examples.classes, int(minor))
    counts = np.where(held, 0, small[:, None])
    rest = totals - counts.sum(1)
    holders = held.sum(1)
    for label in np.flatnonzero(rest < holders * np.maximum(1, small)):
        raise FedfuseError(
            f"step: class {label} has {totals[label]} examples; {clients - holders[label]} clients take "
            f"{small[label]} each as a minor class, which leaves too few for client {held[label].argmax()}, whose "
            "major class it is: lower minor or have fewer clients"
        )
    turn = held.cumsum(1) - 1  # a class's holders in order: the first ones take the remainder
    counts += held * ((rest // holders)[:, None] + (turn < (rest % holders)[:, None]))
    return _deal(examples.y, counts, draw)


def _deal_majors(clients: int, major: int, classes: int, draw: np.random.Generator) -> Array:
    """(C, K) bool: which class is major for which client."""
    held = np.zeros((classes, clients), bool)
    deck: list[int] = []
    for client in range(clients):
        for _ in range(major):
            if not deck:
                # Classes that this client already holds go to the bottom of a new deck, so it gets no class twice.
                deck = sorted(draw.permutation(classes).tolist(), key=lambda c: bool(held[c, client]), reverse=True)
            held[deck.pop(), client] = True
    return held


def by_column(
    examples: Examples, clients: int, rng: torch.Generator, *, column: str = "user", least: int = 1
) -> list[Tensor]:
    """Natural users: the values of a column. Fewer clients than users: each client is a random group of users.

    Users with fewer than `least` examples are left out, the one case in which a split is not complete (Fed-ET
    keeps Sent140 users with more than 100 tweets).
    """
    if column not in examples.columns:
        raise FedfuseError(
            f"column: the data has no column {column!r}, it has {', '.join(examples.columns) or 'none'}: name the one "
            "that says whose an example is"
        )
    users, user, sizes = np.unique(examples.columns[column].numpy(), return_inverse=True, return_counts=True)
    kept = np.flatnonzero(sizes >= least)
    if len(kept) < clients:
        raise FedfuseError(
            f"column: {column!r} has {len(kept)} users with {least} or more examples (of {len(users)}), so client "
            f"{len(kept)} of {clients} would have none: ask for at most {len(kept)} clients, or lower least"
        )
    client = np.full(len(users), clients)  # `clients` stands for nobody
    client[kept] = np.arange(clients) if len(kept) == clients else _numpy(rng).permutation(len(kept)) % clients
    return _collect(np.arange(len(examples)), client[user], clients)


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
    # torch draws Dirichlet samples from its global generator only, numpy from its own.
    return np.random.Generator(np.random.PCG64(int(torch.randint(2**62, (), generator=rng))))


def _totals(examples: Examples) -> Array:
    return np.bincount(examples.y.numpy(), minlength=examples.classes)


def _even(total: int, clients: int) -> Array:
    return total // clients + (np.arange(clients) < total % clients)


def _cut(shares: Array, totals: Array) -> Array:
    """shares (C, K), rows summing to 1, and totals (C,) -> whole counts (C, K) with those totals."""
    ends = np.floor(np.cumsum(shares, 1) * totals[:, None] + 1e-9).astype(int)
    ends[:, -1] = totals
    return np.diff(np.minimum(ends, totals[:, None]), axis=1, prepend=0)


def _deal(y: Tensor, counts: Array, draw: np.random.Generator) -> list[Tensor]:
    """Random examples of each class to each client, as many as counts (C, K) says."""
    shuffled = draw.permutation(len(y))
    order = shuffled[np.argsort(y.numpy()[shuffled], kind="stable")]
    clients = counts.shape[1]
    return _collect(order, np.repeat(np.tile(np.arange(clients), len(counts)), counts.ravel()), clients)


def _collect(rows: Array, owner: Array, clients: int) -> list[Tensor]:
    """Each client's rows, sorted: rows[i] belongs to owner[i], and to nobody if that is `clients`."""
    sizes = np.bincount(owner, minlength=clients + 1)
    grouped = rows[np.lexsort((rows, owner))].astype(np.int64)
    return [torch.from_numpy(part) for part in np.split(grouped, np.cumsum(sizes)[:-1])[:clients]]


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise FedfuseError(f"{name} is {value:g}: it must be above 0")


def _enough(examples: Examples, clients: int, each: int) -> None:
    if clients < 1:
        raise FedfuseError(f"{clients} clients: at least 1 is needed")
    if each < 1:
        raise FedfuseError(f"min_size is {each}: a client needs at least 1 example")
    if len(examples) < clients * each:
        raise FedfuseError(
            f"{len(examples)} examples are too few for {clients} clients with {each} each: client "
            f"{len(examples) // each} would have fewer. Have fewer clients, or more data"
        )
