"""The representation head that models of different architectures share (Fed-ET): an MLP that ends in the classifier.

`resnet8+head128` is ResNet-8 whose features go through a projection of its own to 128 numbers, and then through a head
that is the same in every net with this width: 128 - 128 - classes. So the head's tensors, `head.*`, fit all of them.
"""

from __future__ import annotations

import re

from torch import Tensor, nn

from fedfuse.models.classifier import Classifier
from fedfuse.types import FedfuseError, Tensors

MARK = "+head"
HEAD = "head."  # what the names of its tensors begin with


def with_head(arch: str, width: int | None) -> str:
    """The name of this architecture with a shared head; without a width, or where it has a head, its own name."""
    return arch if width is None or split(arch)[1] is not None else f"{arch}{MARK}{width}"


def split(arch: str) -> tuple[str, int | None]:
    """`resnet8+head128` -> (`resnet8`, 128); without a head (`resnet8`, None)."""
    found = re.fullmatch(rf"(.+){re.escape(MARK)}([1-9][0-9]*)", arch)
    return (found[1], int(found[2])) if found else (arch, None)


def with_shared_head(name: str, net: nn.Module, width: int, classes: int) -> Classifier:
    """The net with its own head replaced by a projection and the shared head."""
    if not isinstance(net, Classifier):
        raise FedfuseError(
            f"{name}: a shared head needs a net that is made of a trunk and a head, fedfuse.models.Classifier, "
            f"but this one is a {type(net).__name__}"
        )
    trunk = nn.Sequential(net.trunk, nn.Linear(net.width, width), nn.ReLU())
    head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes))
    return Classifier(trunk, head, width)


def head_of(params: Tensors) -> dict[str, Tensor]:
    """The tensors of the head."""
    return {name: tensor for name, tensor in params.items() if name.startswith(HEAD)}
