"""External nets: `timm:<name>`, `torchvision:<name>`, and `package.module:factory` (your own)."""

from __future__ import annotations

import importlib

from torch import nn

from fedfuse import signature
from fedfuse.models.classifier import Shape
from fedfuse.types import FedfuseError

LIBRARIES = ("timm", "torchvision")


def from_library(library: str, name: str, classes: int, shape: Shape) -> nn.Module:
    """A net of timm or torchvision with fresh weights."""
    try:
        module = importlib.import_module(library)
        if library == "timm":
            net = module.create_model(name, pretrained=False, num_classes=classes, in_chans=shape[0])
        else:
            net = importlib.import_module("torchvision.models").get_model(name, weights=None, num_classes=classes)
    except ModuleNotFoundError as error:
        raise FedfuseError(f"{library}:{name} needs {error.name}: `pip install {library}`") from error
    except Exception as error:  # an unknown name, another shape, a library that does not fit this torch
        reason = str(error).partition("\n")[0]
        raise FedfuseError(f"{library}:{name} cannot be built ({type(error).__name__}: {reason})") from error
    return net  # type: ignore[no-any-return]


def own(name: str, classes: int, shape: Shape) -> nn.Module:
    """The net that `package.module:factory` returns."""
    factory = signature.resolve(name, {}, "architecture")
    try:
        net = factory(classes=classes, shape=shape)
    except (Exception, SystemExit) as error:  # a user's code may raise anything, and even leave the program
        reason = str(error).strip().partition("\n")[0]
        raise FedfuseError(
            f"{name}(classes={classes}, shape={shape}) raised {type(error).__name__}: {reason}. A factory takes"
            " `classes: int, shape: tuple[int, ...]` and returns a torch.nn.Module"
        ) from error
    if not isinstance(net, nn.Module):
        raise FedfuseError(f"{name} returned a {type(net).__name__}: a factory must return a torch.nn.Module")
    return net
