"""The only arithmetic on parameter trees. A tree is a mapping from names to tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from fedfuse.types import FedfuseError, Snapshot, Tensors

PIECE = 1 << 16  # elements: 512 KiB in double precision. Larger blocks are requested from the system each time


def map_trees(function: Callable[..., Tensor], first: Tensors, *others: Tensors) -> dict[str, Tensor]:
    """Apply `function` to the tensors of each name. All trees have the names of the first."""
    return {name: function(t, *(other[name] for other in others)) for name, t in first.items()}


def zeros_like(tree: Tensors) -> dict[str, Tensor]:
    return map_trees(torch.zeros_like, tree)


def subtract(a: Tensors, b: Tensors) -> dict[str, Tensor]:
    return map_trees(torch.sub, a, b)


def add_scaled(a: Tensors, factor: float, b: Tensors) -> dict[str, Tensor]:
    """a + factor * b."""
    return map_trees(lambda x, y: torch.add(x, y, alpha=factor), a, b)


def pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split tensors of one shape into views, all at the same places along their first axis.

    Computing on the views stays in the cache, and never needs a temporary as large as a layer.
    """
    first = tensors[0]
    if first.numel() <= PIECE:
        yield tensors
        return
    rows = max(1, PIECE * len(first) // first.numel())
    yield from zip(*(torch.split(t, rows) for t in tensors), strict=True)


def all_finite(tensor: Tensor) -> bool:
    return all(bool(torch.isfinite(piece).all()) for (piece,) in pieces(tensor))


def equal(a: Tensors, b: Tensors) -> bool:
    """Return whether both trees have the same names and values."""
    return a.keys() == b.keys() and all(torch.equal(t, b[name]) for name, t in a.items())


def squared_distance(a: Tensors, b: Tensors) -> float:
    """Return the squared Euclidean distance over all float tensors, in double precision."""
    pairs = (pair for name, t in a.items() if t.is_floating_point() for pair in pieces(t, b[name]))
    return sum(float((x.double() - y).pow_(2).sum()) for x, y in pairs)


def count(tree: Tensors) -> int:
    """Return the number of elements in the tree."""
    return sum(t.numel() for t in tree.values())


def nbytes(tree: Tensors) -> int:
    return sum(t.numel() * t.element_size() for t in tree.values())


def flatten(model: Snapshot) -> Tensor:
    """Return all parameters and buffers as one vector (P,), in double precision."""
    return torch.cat([t.reshape(-1).double() for t in (*model.params.values(), *model.buffers.values())])


def unflatten(vector: Tensor, like: Snapshot) -> Snapshot:
    """Return a model with these values (P,) and the shapes and dtypes of `like`. Integer tensors are rounded."""
    sizes = [t.numel() for t in (*like.params.values(), *like.buffers.values())]
    chunks = iter(torch.split(vector, sizes))

    def fill(tensors: Tensors) -> dict[str, Tensor]:
        return {name: _cast(next(chunks), t.dtype).view(t.shape) for name, t in tensors.items()}

    return Snapshot(like.arch, fill(like.params), fill(like.buffers))


def _cast(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a copy in this dtype, rounded to the nearest for integers."""
    return (values if dtype.is_floating_point else values.round()).to(dtype, copy=True)


class RunningMean:
    """The weighted mean of trees that are added one at a time.

    Each tree moves the mean by w/W (x - mean), in double precision. Only the mean is kept, however many trees are
    added, and equal trees average to themselves, bit for bit. Integer tensors (counters) are rounded to the nearest.
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
        """Return the mean so far, in the dtypes of the first tree."""
        pairs = zip(self.mean.items(), self.dtypes.values(), strict=True)
        return {name: _cast(mean, dtype) for (name, mean), dtype in pairs}


class RunningSnapshots:
    """A `RunningMean` of parameters and one of buffers for each architecture that is added."""

    def __init__(self) -> None:
        self.params: dict[str, RunningMean] = {}
        self.buffers: dict[str, RunningMean] = {}

    def add(self, snapshot: Snapshot, weight: float) -> None:
        self.params.setdefault(snapshot.arch, RunningMean()).add(snapshot.params, weight)
        self.buffers.setdefault(snapshot.arch, RunningMean()).add(snapshot.buffers, weight)

    def value(self) -> Mapping[str, Snapshot]:
        return {arch: Snapshot(arch, p.value(), self.buffers[arch].value()) for arch, p in self.params.items()}
