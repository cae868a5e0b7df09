"""A net as a chain of layers, each with a weight and a bias, bottom up (FedMA)."""

from __future__ import annotations

from torch import Tensor

from fedfuse.types import Tensors


def layers(params: Tensors) -> list[tuple[str, str]]:
    """The names of each layer's weight and bias, bottom up."""
    names = list(params)
    return list(zip(names[::2], names[1::2], strict=True))


def widths(params: Tensors) -> list[int]:
    """The widths of the hidden layers."""
    return [len(params[bias]) for _, bias in layers(params)[:-1]]


def by_unit(weight: Tensor, units: int) -> Tensor:
    """(L, units, ...): the weights from each neuron below. A flattened channel has a block of weights."""
    return weight if weight.dim() == 4 else weight.reshape(len(weight), units, -1)


def whole(weight: Tensor) -> Tensor:
    """The inverse of `by_unit`."""
    return weight if weight.dim() == 4 else weight.flatten(1)


def above(params: Tensors, stage: int) -> dict[str, Tensor]:
    """The parameters of this layer and all layers above it."""
    return {name: params[name] for layer in layers(params)[stage:] for name in layer}


def spread(weight: Tensor, below: Tensor, width: int) -> Tensor:
    """A client's weights (L, U, ...) -> (L, width, ...): its inputs at their places `below` (U,) in the global layer.

    The weights of neurons that the client does not have are zero.
    """
    wide = weight.new_zeros(len(weight), width, *weight.shape[2:])
    wide[:, below] = weight
    return wide
