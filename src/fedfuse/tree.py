"""The only arithmetic on parameter trees. A tree is a mapping from names to tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from fedfuse.types import FedfuseError, Snapshot, Tensors

PIECE = 1 << 16  # numbers: 512 KiB in double precision. Memory for larger ones comes from the system anew each time


def map_trees(function: Callable[..., Tensor], first: Tensors, *others: Tensors) -> dict[str, Tensor]:
    """`function` applied name by name; all trees have the names of the first."""
    return {name: function(t, *(other[name] for other in others)) for name, t in first.items()}


def zeros_like(tree: Tensors) -> dict[str, Tensor]:
    return map_trees(torch.zeros_like, tree)


def subtract(a: Tensors, b: Tensors) -> dict[str, Tensor]:
    return map_trees(torch.sub, a, b)


def add_scaled(a: Tensors, factor: float, b: Tensors) -> dict[str, Tensor]:
    """a + factor * b."""
    return map_trees(lambda x, y: torch.add(x, y, alpha=factor), a, b)


def pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Views of tensors of one shape, cut alike along their first axis: what is computed on each stays in the cache,
    and a temporary as large as a layer is never made."""
    first = tensors[0]
    if first.numel() <= PIECE:
        yield tensors
        return
    rows = max(1, PIECE * len(first) // first.numel())
    yield from zip(*(torch.split(t, rows) for t in tensors), strict=True)


def all_finite(tensor: Tensor) -> bool:
    return all(bool(torch.isfinite(piece).all()) for (piece,) in pieces(tensor))


def squared_distance(a: Tensors, b: Tensors) -> float:
    """The squared Euclidean distance over all float tensors, in double precision."""
    pairs = (pair for name, t in a.items() if t.is_floating_point() for pair in pieces(t, b[name]))
    return sum(float((x.double() - y).pow_(2).sum()) for x, y in pairs)


def count(tree: Tensors) -> int:
    """How many numbers the tree holds."""
    return sum(t.numel() for t in tree.values())


def nbytes(tree: Tensors) -> int:
    return sum(t.numel() * t.element_size() for t in tree.values())


def flatten(model: Snapshot) -> Tensor:
    """All parameters and buffers as one vector (P,), in double precision."""
    return torch.cat([t.reshape(-1).double() for t in (*model.params.values(), *model.buffers.values())])


def unflatten(vector: Tensor, like: Snapshot) -> Snapshot:
    """The model with these values (P,) and the shapes and dtypes of `like`. Integer tensors are rounded."""
    sizes = [t.numel() for t in (*like.params.values(), *like.buffers.values())]
    pieces = iter(torch.split(vector, sizes))

    def filled(tensors: Tensors) -> dict[str, Tensor]:
        return {name: _as(next(pieces), t.dtype).view(t.shape) for name, t in tensors.items()}

    return Snapshot(like.arch, filled(like.params), filled(like.buffers))


def _as(values: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy in this dtype; for integers rounded to the nearest."""
    return (values if dtype.is_floating_point else values.round()).to(dtype, copy=True)


class RunningMean:
    """A weighted mean over trees that arrive one at a time.

    The mean moves by w/W (x - mean) in double precision: one tree in memory however many arrive, and equal
    trees average to themselves, bit for bit. Integer tensors (counters) are rounded to the nearest.
    """

    def __init__(self) -> None:
        self.weight = 0.0
        self.mean: dict[str, Tensor] = {}
        self.dtypes: dict[str, torch.dtype] = {}

    def add(self, tree: Tensors, weight: float) -> None:
        if not weight > 0:
            raise FedfuseError(f"a mean was given the weight {weight}: weights must be positive")
        self.weight += weight
        if not self.mean:
            self.mean = map_trees(lambda t: t.to(torch.float64, copy=True), tree)
            self.dtypes = {name: t.dtype for name, t in tree.items()}
            return
        share = weight / self.weight
        for name, whole in self.mean.items():
            for mean, x in pieces(whole, tree[name]):
                mean.add_(x.to(torch.float64) - mean, alpha=share)

    def value(self) -> dict[str, Tensor]:
        """The mean so far, in the dtypes of the first tree."""
        return {
            name: _as(mean, dtype) for (name, mean), dtype in zip(self.mean.items(), self.dtypes.values(), strict=True)
        }


class RunningSnapshots:
    """A `RunningMean` of parameters and one of buffers for every architecture that arrives."""

    def __init__(self) -> None:
        self.params: dict[str, RunningMean] = {}
        self.buffers: dict[str, RunningMean] = {}

    def add(self, snapshot: Snapshot, weight: float) -> None:
        self.params.setdefault(snapshot.arch, RunningMean()).add(snapshot.params, weight)
        self.buffers.setdefault(snapshot.arch, RunningMean()).add(snapshot.buffers, weight)

    def value(self) -> Mapping[str, Snapshot]:
        return {arch: Snapshot(arch, p.value(), self.buffers[arch].value()) for arch, p in self.params.items()}
