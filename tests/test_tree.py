"""Large tensors are worked on in pieces: the same numbers as on the whole, whatever their shape or layout."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedfuse import tree
from fedfuse.testing import bits
from tests.doubles import snapshot

SHAPES = {
    "scalar": (),
    "empty": (0, 3),
    "one row": (1, 3 * tree.PIECE),
    "one piece": (tree.PIECE,),
    "many rows": (700, 300),
    "rows that do not go up": (5, tree.PIECE // 2 - 1),
}


def two(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=draw), torch.randn(shape, generator=draw)


def laid_out_otherwise(tensor: Tensor) -> Tensor:
    """The same values, with the last axis outermost in memory."""
    return tensor.movedim(-1, 0).contiguous().movedim(0, -1)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_pieces_are_views_of_the_whole_in_order(shape: tuple[int, ...]) -> None:
    x, y = two(shape)
    cut = list(tree.pieces(x, y))
    assert all(a.shape == b.shape for a, b in cut)
    assert all(a.numel() <= max(tree.PIECE, x.numel() // max(1, len(x) if x.dim() else 1)) for a, _ in cut)
    if x.dim():
        assert torch.equal(torch.cat([a for a, _ in cut]), x)
        assert torch.equal(torch.cat([b for _, b in cut]), y)
    for a, _ in cut:
        a.zero_()
    assert not x.any()


@pytest.mark.parametrize("shape", [(700, 300), (701, 303), (8, 40, 30, 30), (3, 99_991)])
def test_a_mean_in_pieces_has_the_bits_of_one_on_the_whole(shape: tuple[int, ...]) -> None:
    x, y = two(shape)
    running = tree.RunningMean()
    running.add({"w": x}, 1.0)
    running.add({"w": laid_out_otherwise(y)}, 2.0)
    mean = x.double()
    mean.add_(y.double() - mean, alpha=2.0 / 3.0)
    assert torch.equal(running.mean["w"], mean)
    assert torch.equal(running.value()["w"], mean.float())


def test_a_distance_in_pieces() -> None:
    x, y = two((700, 300))
    whole = float((x.double() - y.double()).square().sum())
    assert tree.squared_distance({"w": x}, {"w": laid_out_otherwise(y)}) == pytest.approx(whole, rel=1e-14)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", [0, 123_456, 209_999])
def test_one_number_that_is_not_finite_is_found(value: float, place: int) -> None:
    x, _ = two((700, 300))
    assert tree.all_finite(x)
    x.view(-1)[place] = value
    assert not tree.all_finite(x)


def test_a_model_comes_back_from_its_vector() -> None:
    model = snapshot(1.5, -2.0, mean=torch.tensor([[0.25], [3.0]]), count=torch.tensor(7))
    vector = tree.flatten(model)
    assert vector.tolist() == [1.5, -2.0, 0.25, 3.0, 7.0]
    again = tree.unflatten(vector, model)
    assert bits(again) == bits(model)
    again.params["w"].add_(1)
    assert vector[0] == 1.5  # a copy
