"""Weights in fewer bits, for uploads: bfloat16, int8, or one bit, the last two with a scale for each filter.

A filter is an index of a weight's first axis: an output channel of a convolution, a row of a dense layer. `Snapshot`s
are packed by the clients and unpacked by the server's vetting, so that nothing else knows of packed weights.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from types import MappingProxyType
from typing import Literal, Protocol, get_args

import numpy as np
import torch
from torch import Tensor

from fedfuse.types import Extras, PackedModel, Snapshot, Tensors, TensorSpec

Upload = Literal["float32", "bfloat16", "int8", "1bit"]
UploadOf = Literal["model", "difference"]
UPLOADS: tuple[Upload, ...] = get_args(Upload)
FULL: Upload = "float32"

MOST = 127  # largest code of int8: the code -128 is not used, so that codes are symmetric


class Packing(Protocol):
    """How one weight is packed into codes and, if it has `scales`, one float32 per filter."""

    scales: bool

    def pack(self, weight: Tensor) -> tuple[Tensor, Tensor | None]: ...

    def unpack(self, codes: Tensor, scales: Tensor | None, shape: torch.Size) -> Tensor: ...

    def codes(self, shape: torch.Size) -> TensorSpec:
        """The codes of a weight of this shape."""

    def problem(self, codes: Tensor, shape: torch.Size) -> str | None:
        """What is wrong with codes that fit their spec; None if they are sound."""


class BFloat16:
    """Each weight rounded to the nearest bfloat16, ties to even: a relative error of at most 2^-8."""

    scales = False

    def pack(self, weight: Tensor) -> tuple[Tensor, Tensor | None]:
        return weight.to(torch.bfloat16), None

    def unpack(self, codes: Tensor, scales: Tensor | None, shape: torch.Size) -> Tensor:
        return codes.float()

    def codes(self, shape: torch.Size) -> TensorSpec:
        return TensorSpec(tuple(shape), torch.bfloat16)

    def problem(self, codes: Tensor, shape: torch.Size) -> str | None:
        return None


class Int8:
    """Whole multiples of a filter's scale, max |w| / 127: an error of at most half the scale."""

    scales = True

    def pack(self, weight: Tensor) -> tuple[Tensor, Tensor | None]:
        rows = weight.flatten(1)
        largest = rows.abs().amax(1)
        # The quotient of a number below the smallest normal one has few digits: a larger scale keeps the bound.
        scales = (largest / MOST).clamp(min=torch.finfo(torch.float32).tiny).where(largest > 0, largest)
        codes = (rows / scales.where(largest > 0, torch.ones_like(scales)).unsqueeze(1)).round_().clamp_(-MOST, MOST)
        return codes.to(torch.int8).view(weight.shape), scales

    def unpack(self, codes: Tensor, scales: Tensor | None, shape: torch.Size) -> Tensor:
        assert scales is not None
        return codes.float().mul_(_per_filter(scales, shape))

    def codes(self, shape: torch.Size) -> TensorSpec:
        return TensorSpec(tuple(shape), torch.int8, low=-MOST)

    def problem(self, codes: Tensor, shape: torch.Size) -> str | None:
        return None


class OneBit:
    """The sign of each weight, 0 counting as positive, and the mean |w| of its filter (XNOR-Net).

    The bits are in the weight's order, the lowest bit of a byte first; the last byte is filled with zeros.
    """

    scales = True

    def pack(self, weight: Tensor) -> tuple[Tensor, Tensor | None]:
        bits = np.packbits((weight >= 0).flatten().numpy(), bitorder="little")
        return torch.from_numpy(bits), mean_magnitudes(weight)

    def unpack(self, codes: Tensor, scales: Tensor | None, shape: torch.Size) -> Tensor:
        assert scales is not None
        bits = np.unpackbits(codes.numpy(), count=prod(shape), bitorder="little")
        signs = torch.from_numpy(bits).view(shape).float().mul_(2).sub_(1)
        return signs.mul_(_per_filter(scales, shape))

    def codes(self, shape: torch.Size) -> TensorSpec:
        return TensorSpec((-(-prod(shape) // 8),), torch.uint8)

    def problem(self, codes: Tensor, shape: torch.Size) -> str | None:
        used = prod(shape) % 8
        return "has bits behind its last weight" if used and int(codes[-1]) >> used else None


PACKINGS: Mapping[str, Packing] = MappingProxyType({"bfloat16": BFloat16(), "int8": Int8(), "1bit": OneBit()})


def mean_magnitudes(weight: Tensor) -> Tensor:
    """XNOR-Net's alpha (filters,): the mean |w| of each filter."""
    return weight.detach().abs().flatten(1).mean(1)


def _per_filter(scales: Tensor, shape: torch.Size) -> Tensor:
    """Return (filters,) as (filters, 1, ...), to multiply a weight of this shape."""
    return scales.view(-1, *(1 for _ in shape[1:]))


def packable(weight: Tensor) -> bool:
    """Return whether a weight has filters: single-precision, with two axes or more."""
    return weight.dtype == torch.float32 and weight.dim() > 1 and weight.numel() > 0


def pack(weights: Tensors, upload: Upload) -> tuple[Tensors, Tensors]:
    """Return the codes and the scales of these weights."""
    parts = {name: PACKINGS[upload].pack(weight) for name, weight in weights.items()}
    scales = {name: scale for name, (_, scale) in parts.items() if scale is not None}
    return {name: codes for name, (codes, _) in parts.items()}, scales


def unpack(codes: Tensors, scales: Tensors, template: Tensors, upload: Upload) -> dict[str, Tensor]:
    """Return the weights that `pack` would give these codes and scales, in the shapes of the template."""
    packing = PACKINGS[upload]
    return {name: packing.unpack(code, scales.get(name), template[name].shape) for name, code in codes.items()}


def specs(template: Snapshot, names: Collection[str], upload: Upload) -> Extras:
    """Return what the groups of a packed model must hold. `names`: the weights that are packed."""
    packing, params = PACKINGS[upload], template.params
    scales = {name: TensorSpec((len(params[name]),), low=0.0) for name in names} if packing.scales else {}
    return PackedModel.grouped(
        TensorSpec.each({name: t for name, t in params.items() if name not in names}),
        TensorSpec.each(template.buffers),
        {name: packing.codes(params[name].shape) for name in names},
        scales,
    )


def problem(model: PackedModel, template: Snapshot, upload: Upload) -> str | None:
    """Return what is wrong with codes that fit `specs`; None if they are sound."""
    for name, codes in model.codes.items():
        if text := PACKINGS[upload].problem(codes, template.params[name].shape):
            return f"{name} {text}"
    return None


def unpacked(model: PackedModel, template: Snapshot, received: Tensors, upload: Upload) -> Snapshot:
    """Return the model. `model` fits `specs`. received: what differences are added to; of a whole model, nothing."""
    weights = unpack(model.codes, model.scales, template.params, upload)
    for name in received.keys() & weights.keys():
        weights[name].add_(received[name])
    params = {name: weights[name] if name in weights else model.params[name] for name in template.params}
    return Snapshot(model.arch, params, model.buffers)
