"""The representation head that models of different architectures share (Fed-ET): an MLP that ends in the classifier.

`resnet8+head128` is ResNet-8 with its own projection of the features to 128 numbers, and a head 128 - 128 - classes.
The head has the same shapes in every net with this width, so its tensors, `head.*`, fit all of them.
"""

from __future__ import annotations

import re
from dataclasses import replace

from torch import Tensor, nn

from fedfuse.models.classifier import Classifier, Trunk
from fedfuse.types import FedfuseError, Snapshot, Tensors

MARK = "+head"
HEAD = "head."  # prefix of the names of its tensors


def with_head(arch: str, width: int | None) -> str:
    """The name of `arch` with a shared head of this width; `arch` itself if the width is None or it has a head."""
    return arch if width is None or split(arch)[1] is not None else f"{arch}{MARK}{width}"


def split(arch: str) -> tuple[str, int | None]:
    """`resnet8+head128` -> (`resnet8`, 128); without a head (`resnet8`, None)."""
    match = re.fullmatch(rf"(.+){re.escape(MARK)}([1-9][0-9]*)", arch)
    return (match[1], int(match[2])) if match else (arch, None)


def with_shared_head(name: str, net: nn.Module, width: int, classes: int) -> Classifier:
    """The net with its own head replaced by a projection and the shared head."""
    if not isinstance(net, Classifier):
        raise FedfuseError(
            f"{name}: a shared head needs a fedfuse.models.Classifier, but this net is a {type(net).__name__}: wrap "
            "its trunk and head in one"
        )
    trunk = Trunk(net.trunk, nn.Linear(net.width, width), nn.ReLU())
    return Classifier(trunk, new_head(width, classes), width)


def new_head(width: int, classes: int) -> nn.Sequential:
    """A shared head with new weights."""
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes))


def head_of(params: Tensors) -> dict[str, Tensor]:
    """The tensors of the head."""
    return {name: tensor for name, tensor in params.items() if name.startswith(HEAD)}


def with_head_of(model: Snapshot, head: Tensors) -> Snapshot:
    """The model with a copy of this head in place of its own."""
    own = {name: tensor.clone() for name, tensor in head.items()}
    return replace(model, params={**model.params, **own})
