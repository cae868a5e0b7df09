"""Weights in fewer bits: the codes of small weights by hand, bounds on the error of any, and bytes of ResNet-8."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedfuse import models, packing, tree
from fedfuse.models.precision import Precision
from fedfuse.packing import PACKINGS, Upload
from fedfuse.types import Snapshot

LARGE = 2.0**99
FLOATS = st.floats(-LARGE, LARGE, width=32)


@st.composite
def weights(draw: st.DrawFn) -> Tensor:
    shape = draw(st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3)))
    values = draw(st.lists(FLOATS, min_size=shape[0] * shape[1] * shape[2], max_size=shape[0] * shape[1] * shape[2]))
    return torch.tensor(values, dtype=torch.float32).view(shape)


def both_ways(weight: Tensor, upload: Upload) -> tuple[Tensor, Tensor | None, Tensor]:
    codes, scales = PACKINGS[upload].pack(weight)
    return codes, scales, PACKINGS[upload].unpack(codes, scales, weight.shape)


def test_one_bit_by_hand() -> None:
    """Signs by row, 0 counting as positive, the first weight in the lowest bit; the scale is the mean of |w|."""
    weight = torch.tensor([[1.0, -2.0, 0.0], [-4.0, 5.0, 6.0]])
    codes, scales, back = both_ways(weight, "1bit")
    assert codes.tolist() == [0b110101]
    assert scales is not None
    assert scales.tolist() == [1.0, 5.0]
    assert back.tolist() == [[1.0, -1.0, 1.0], [-5.0, 5.0, 5.0]]


def test_int8_by_hand() -> None:
    """A row's scale is its largest |w| / 127; the codes are rounded to the nearest, ties to even. Zeros stay zeros."""
    weight = torch.tensor([[12.7, -0.1, 0.26], [254.0, -3.0, 1.0], [0.0, 0.0, 0.0]])
    codes, scales, back = both_ways(weight, "int8")
    assert codes.tolist() == [[127, -1, 3], [127, -2, 0], [0, 0, 0]]
    assert scales is not None
    torch.testing.assert_close(scales, torch.tensor([0.1, 2.0, 0.0]))
    torch.testing.assert_close(back, torch.tensor([[12.7, -0.1, 0.3], [254.0, -4.0, 0.0], [0.0, 0.0, 0.0]]))


def test_bfloat16_by_hand() -> None:
    """8 significant bits, ties to even: 257 lies halfway between 256 and 258, 259 between 258 and 260."""
    _, scales, back = both_ways(torch.tensor([[257.0, 259.0, 1.5]]), "bfloat16")
    assert scales is None
    assert back.tolist() == [[256.0, 260.0, 1.5]]


@given(weights())
def test_int8_is_off_by_half_a_scale_at_most(weight: Tensor) -> None:
    _, scales, back = both_ways(weight, "int8")
    assert scales is not None
    error = (weight.double() - back.double()).abs().flatten(1).amax(1)
    rounding = 127 * 2.0**-23  # of the quotient and of the product, in scales
    assert (error <= scales.double() * (0.5 + rounding)).all()
    largest = weight.abs().flatten(1).amax(1)
    assert (scales <= (largest / 127).clamp(min=torch.finfo(torch.float32).tiny)).all()


@given(weights())
def test_bfloat16_is_off_by_a_256th_at_most(weight: Tensor) -> None:
    _, _, back = both_ways(weight, "bfloat16")
    tiny = torch.finfo(torch.float32).tiny  # below it, the error is absolute
    assert ((weight - back).abs() <= weight.abs() * 2.0**-8 + tiny).all()


@given(weights())
def test_one_bit_keeps_signs_and_the_mean_magnitude(weight: Tensor) -> None:
    """alpha sign(w) with the mean |w| is the nearest such model in the squared distance (XNOR-Net)."""
    _, scales, back = both_ways(weight, "1bit")
    assert scales is not None
    assert torch.equal(back > 0, (weight >= 0) & (scales > 0).view(-1, 1, 1))
    assert torch.equal(back.abs(), scales.view(-1, 1, 1).expand_as(back))
    for factor in (0.9, 1.1):
        nearest = (weight.double() - back.double()).square().sum()
        assert nearest <= (weight.double() - factor * back.double()).square().sum() * (1 + 1e-5) + 1e-30


@given(weights())
@pytest.mark.parametrize("upload", ["int8", "bfloat16", "1bit"])
def test_what_was_unpacked_packs_to_itself(upload: Upload, weight: Tensor) -> None:
    _, _, once = both_ways(weight, upload)
    _, _, twice = both_ways(once, upload)
    torch.testing.assert_close(twice, once, rtol=1e-5, atol=1e-37)


def resnet8(norm: str = "bn") -> tuple[Snapshot, torch.nn.Module]:
    torch.manual_seed(0)
    net = models.build(f"resnet8:{norm}", classes=10, shape=(3, 32, 32))
    return Snapshot.of(f"resnet8:{norm}", net), net


def test_one_bit_makes_resnet8s_binarised_layers_29_times_smaller_and_all_of_it_16_times() -> None:
    model, net = resnet8()
    names = Precision("1bit").packed_weights(net)
    packed = {name: model.params[name] for name in names}
    codes, scales = packing.pack(packed, "1bit")
    small = tree.nbytes(codes) + tree.nbytes(scales)
    assert len(names) == 6  # 8 layers but the first and the last
    assert 29 < tree.nbytes(packed) / small < 30
    rest = tree.nbytes(model.params) - tree.nbytes(packed) + tree.nbytes(model.buffers)
    whole = tree.nbytes(model.params) + tree.nbytes(model.buffers)
    assert 16 < whole / (rest + small) < 17


@pytest.mark.parametrize(("upload", "times"), [("bfloat16", 1.97), ("int8", 3.80)])
def test_other_formats_make_resnet8_smaller(upload: Upload, times: float) -> None:
    model, net = resnet8()
    names = Precision(upload).packed_weights(net)
    codes, scales = packing.pack({name: model.params[name] for name in names}, upload)
    rest = {name: t for name, t in model.params.items() if name not in codes}
    sent = sum(map(tree.nbytes, (codes, scales, rest, model.buffers)))
    assert (tree.nbytes(model.params) + tree.nbytes(model.buffers)) / sent == pytest.approx(times, abs=0.01)


@pytest.mark.parametrize("upload", ["int8", "bfloat16", "1bit"])
def test_tensors_without_filters_are_sent_as_they_are(upload: Upload) -> None:
    model, net = resnet8("gn")
    specs = packing.specs(model, Precision(upload).packed_weights(net), upload)
    ones = {name for name, t in model.params.items() if t.dim() == 1}
    assert ones <= set(specs["model/params"])
    assert {*specs["model/params"], *specs["packed/codes"]} == set(model.params)
    assert all(spec.dtype == torch.float32 for spec in specs["model/params"].values())


def test_a_weight_that_is_not_finite_has_a_scale_that_is_not() -> None:
    for upload in ("int8", "1bit"):
        for value in (torch.nan, torch.inf):
            _, scales = PACKINGS[upload].pack(torch.tensor([[1.0, value]]))
            assert scales is not None
            assert not scales.isfinite().all()
