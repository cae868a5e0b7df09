"""A net in two parts (FedGKT): the first stage of one architecture, and another net on its features.

`resnet8|resnet56` is the stem of ResNet-8, its convolution with norm and ReLU, and a ResNet-56 that takes the stem's
maps as images. Any net of the zoo can be the second part: it is built for the shape of the features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from fedfuse.compute.batches import as_called, call
from fedfuse.models.classifier import Classifier, Shape, Trunk, zeros
from fedfuse.types import FedfuseError

MARK = "|"

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm)


class Split(nn.Module):
    """logits = server(extractor(x))."""

    def __init__(self, extractor: nn.Module, server: nn.Module) -> None:
        super().__init__()
        self.extractor = extractor
        self.server = server

    def forward(self, x: Tensor | None = None, **inputs: Tensor) -> Tensor:  # -> (B, classes)
        logits: Tensor = self.server(call(self.extractor, as_called(x, inputs)))
        return logits


def joined(client: str, server: str) -> str:
    """The name of `server` on the features of `client`."""
    return f"{client}{MARK}{server}"


def parts(arch: str) -> tuple[str, str] | None:
    """`a|b` -> (a, b); None for other names."""
    client, mark, server = arch.partition(MARK)
    return (client, server) if mark else None


def halves(arch: str, net: nn.Module) -> tuple[Trunk, nn.Sequential]:
    """The net's first stage and the rest, made of the net's own modules: rest(stage(x)) = net(x).

    The first stage is the first layer with weights, all before it, and the norm, ReLU and pool after it. Of a net for
    texts it is the part that takes the words and gives one vector for each text.
    """
    if isinstance(net, Classifier):
        layers, end = list(_flat(net.trunk)), [net.head]
    elif type(net) is nn.Sequential:
        *layers, last = _flat(net)
        end = [last]
    else:
        raise FedfuseError(
            f"{arch}: to send features, a client needs a fedfuse.models.Classifier or a torch.nn.Sequential, but this "
            f"net is a {type(net).__name__}"
        )
    with_weights = [i for i, layer in enumerate(layers) if any(True for _ in layer.parameters())]
    if not with_weights:
        raise FedfuseError(f"{arch}: only its last layer has weights, so there are no features: add a layer")
    later = [i for i in with_weights[1:] if not isinstance(layers[i], _NORMS)]
    cut = later[0] if later else len(layers)
    return Trunk(*layers[:cut]), nn.Sequential(*layers[cut:], *end)


def _flat(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of `module`, with nested sequences flattened."""
    if type(module) in (nn.Sequential, Trunk):
        assert isinstance(module, nn.Sequential)
        for layer in module:
            yield from _flat(layer)
    else:
        yield module


@torch.no_grad()
def feature_shape(extractor: nn.Sequential, shape: Shape) -> Shape:
    """The shape of the features of one input."""
    try:
        return tuple(call(extractor.eval(), zeros(extractor, shape, 1)).shape[1:])
    except (TypeError, ValueError, RuntimeError) as error:
        raise FedfuseError(
            f"the features of a first stage of {type(extractor[0]).__name__} cannot be measured for inputs of shape "
            f"{shape} ({error}): choose another net for the clients"
        ) from error


def continued(client: str, server: str, build: Callable[[str, Shape], nn.Module], shape: Shape) -> Split:
    """The net `client|server`; `build(name, shape)` builds each part."""
    extractor, _ = halves(client, build(client, shape))
    features = feature_shape(extractor, shape)
    try:
        return Split(extractor, build(server, features)).train()
    except FedfuseError as error:
        raise FedfuseError(f"the features that {client} sends have the shape {features}: {error}") from error
