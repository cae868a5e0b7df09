"""One-bit nets: convolutions and dense layers that compute with alpha sign(w), alpha the mean |w| of a filter.

`resnet8:bn:1bit` is ResNet-8 with such layers: the binary-weight networks of XNOR-Net (Rastegari et al. 2016). Its
parameters have the names and shapes of `resnet8:bn`, and are the full-precision weights w that training moves, as in
FedDF's footnote 12; only the forward pass binarises them. The first and the last layer, norms and biases are not
binarised, nor is anything that is not a convolution or a dense layer, such as embeddings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from fedfuse.packing import mean_magnitudes
from fedfuse.types import FedfuseError

Gradient = Literal["clipped", "identity", "xnor"]
Keep = Literal["ends", "first", "last", "none"]

_CHOICES: Mapping[str, tuple[str, ...]] = {"keep": get_args(Keep), "gradient": get_args(Gradient)}


@dataclass(frozen=True)
class OneBit:
    """How a net is binarised, as in `:1bit:keep=none:gradient=xnor`.

    keep: the layers that stay in full precision: the first and the last ("ends"), one of them, or none.
    gradient: what takes the place of the derivative of alpha sign(w), given the gradient g of the binarised weight:
    "clipped", g where |w| <= 1, else 0 (Hubara et al. 2016); "identity", g (Bengio et al. 2013);
    "xnor", g (1/n + alpha [|w| <= 1]) with n weights in the filter (XNOR-Net).
    """

    keep: Keep = "ends"
    gradient: Gradient = "clipped"

    def __str__(self) -> str:
        stated = [f":{f.name}={getattr(self, f.name)}" for f in fields(self) if getattr(self, f.name) != f.default]
        return "1bit" + "".join(stated)

    @staticmethod
    def parse(text: str) -> OneBit:
        """Return the value of which this is the text: `1bit:keep=none`."""
        options: dict[str, Any] = {}
        for option in text.split(":")[1:]:
            key, _, value = option.partition("=")
            if value not in _CHOICES.get(key, ()) or key in options:
                known = "; ".join(f"{name}={'|'.join(choices)}" for name, choices in _CHOICES.items())
                raise FedfuseError(f"{text}: {option!r} is not an option of one-bit nets: give {known}, each once")
            options[key] = value
        return OneBit(**options)


class _Binarise(torch.autograd.Function):
    """w -> alpha sign(w), with one of the straight-through gradients. sign(0) is 1."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, gradient: Gradient) -> Tensor:
        alpha = mean_magnitudes(weight).view(-1, *(1 for _ in weight.shape[1:]))
        ctx.gradient = gradient
        ctx.save_for_backward(weight, alpha)
        return torch.where(weight >= 0, alpha, -alpha)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (grad,), (weight, alpha) = grads, ctx.saved_tensors
        if ctx.gradient == "identity":
            return grad, None
        inside = (weight.abs() <= 1).to(grad.dtype)
        if ctx.gradient == "clipped":
            return grad * inside, None
        return grad * (1 / weight[0].numel() + alpha * inside), None


def binarised(weight: Tensor, gradient: Gradient = "clipped") -> Tensor:
    """Return alpha sign(w) for each filter of w, differentiable by a straight-through gradient."""
    binary: Tensor = _Binarise.apply(weight, gradient)  # type: ignore[no-untyped-call]
    return binary


class _Conv1d(nn.Conv1d):
    gradient: Gradient

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self._conv_forward(x, binarised(self.weight, self.gradient), self.bias)
        return out


class _Conv2d(nn.Conv2d):
    gradient: Gradient

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self._conv_forward(x, binarised(self.weight, self.gradient), self.bias)
        return out


class _Conv3d(nn.Conv3d):
    gradient: Gradient

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self._conv_forward(x, binarised(self.weight, self.gradient), self.bias)
        return out


class _Linear(nn.Linear):
    gradient: Gradient

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, binarised(self.weight, self.gradient), self.bias)


_BINARY: Mapping[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: _Conv1d, nn.Conv2d: _Conv2d, nn.Conv3d: _Conv3d, nn.Linear: _Linear,
}  # fmt: skip


def binary_layers(net: nn.Module, keep: Keep = "ends") -> list[tuple[str, nn.Module]]:
    """Return the layers of `net` that a one-bit net binarises, by name, in the order in which the net has them."""
    layers = [(name, layer) for name, layer in net.named_modules() if type(layer) in _BINARY]
    start = 1 if keep in ("ends", "first") else 0
    stop = len(layers) - 1 if keep in ("ends", "last") else len(layers)
    return layers[start:stop]


def binary_weights(net: nn.Module, keep: Keep = "ends") -> list[str]:
    """Return the names of the parameters that a one-bit net binarises."""
    own = {id(parameter): name for name, parameter in net.named_parameters()}  # a shared weight has one name
    return list(dict.fromkeys(own[id(layer.weight)] for _, layer in binary_layers(net, keep)))


def binarise(name: str, net: nn.Module, settings: OneBit) -> nn.Module:
    """Let the net compute with one-bit weights. Its parameters keep their names."""
    layers = binary_layers(net, settings.keep)
    if not layers:
        kept = "" if settings.keep == "none" else f" besides those that stay in full precision ({settings.keep})"
        raise FedfuseError(
            f"{name}: a one-bit net needs a convolution or dense layer{kept}: choose a deeper net, or :1bit:keep=none"
        )
    for _, layer in layers:
        # Parametrizations would rename the parameters, and a wrapper every layer; so the layers change their class.
        layer.__class__ = _BINARY[type(layer)]
        layer.gradient = settings.gradient  # type: ignore[assignment]
    return net
