"""External nets: `hf:<id or folder>` (Hugging Face image classifiers) and `package.module:factory` (your own)."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fedfuse import signature
from fedfuse.models.classifier import Shape
from fedfuse.types import FedfuseError


class Logits(nn.Module):
    """A transformers model whose forward returns only the logits (B, classes)."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(pixel_values=x).logits
        return logits


def hugging_face(source: str, classes: int) -> nn.Module:
    """The classifier of images or texts at `source` in train mode, with a new head if it had another number of classes.

    A folder with a configuration but no weights gives a net with fresh weights.
    """
    auto = _transformers(source)
    folder = Path(source).expanduser()
    if source.startswith(("/", ".", "~")) and not folder.is_dir():
        raise FedfuseError(f"hf:{source}: no such folder. Give a folder that holds config.json, or a model's id")
    where = str(folder) if folder.is_dir() else source
    if folder.is_dir() and not _has_weights(folder) and (pickled := next(folder.glob("*.bin"), None)) is not None:
        raise FedfuseError(f"hf:{source} has its weights in {pickled.name}, a pickle: save them as safetensors")
    try:
        if folder.is_dir() and not _has_weights(folder):
            config = auto.AutoConfig.from_pretrained(where, num_labels=classes)
            net = kind_of(auto, config).from_config(config)
        else:
            config = auto.AutoConfig.from_pretrained(where)
            net, info = kind_of(auto, config).from_pretrained(
                where, num_labels=classes, ignore_mismatched_sizes=True, use_safetensors=True, output_loading_info=True
            )
            _check_weights(net, info)
    except Exception as error:  # a damaged folder may raise anything
        reason = str(error).strip().partition("\n")[0]
        raise FedfuseError(
            f"hf:{source}: no classifier could be loaded ({reason}). Give the id of a public model,"
            " or a folder that holds config.json; this needs `pip install fedfuse[hf]` and, for an id, a network"
        ) from error
    return called(auto, net).float().train()  # weights stored in half precision cannot be averaged with others


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


def kind_of(auto: Any, config: Any) -> Any:
    """The class of classifiers for this configuration: of images, or else of texts."""
    images = type(config) in auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING
    return auto.AutoModelForImageClassification if images else auto.AutoModelForSequenceClassification


def called(auto: Any, net: Any) -> nn.Module:
    """The net as it is called: with one tensor for images; a classifier of texts takes its inputs by name."""
    images = type(net.config) in auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING
    return Logits(net) if images else net


def _transformers(source: str) -> Any:
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise FedfuseError(f"hf:{source} needs transformers: `pip install fedfuse[hf]`") from error


def _has_weights(folder: Path) -> bool:
    return any(folder.glob("*.safetensors"))


def _check_weights(net: Any, info: Any) -> None:
    """Refuse weights that lack a layer of the base model: transformers would draw it at random.

    A new head is drawn, and so is a pooler, which many base models lack.
    """
    start = f"{net.base_model_prefix}."
    keys = (*info["missing_keys"], *info["mismatched_keys"])
    names = sorted(str(key[0] if isinstance(key, tuple) else key) for key in keys)
    if lost := [name for name in names if name.startswith(start) and "pooler" not in name]:
        raise ValueError(f"it has no weights for {lost[0]}")
