"""Build a net from its name.

- `resnet8`, `resnet8:gn`, `resnet8:gn4`: a net of the zoo, with its own or another norm (gn4: 4 groups in every layer)
- `mlp:64-32`, `mlp:64-32:bn`: a perceptron with these hidden widths
- `convnet:5`, `convnet:5:bn`: FedBE's ConvNet with 5 convolutions instead of 3
- `vgg9:none:32-64-128-128-256-256-600-512`: a VGG with these widths, one for each convolution and hidden layer, such as
  FedMA's wider nets
- `bag`, `bag:64`, `lstm`, `bert-tiny`, `bert-mini`, `distilbert`: nets for texts, with fresh weights
- `hf:<id or folder>`: a Hugging Face classifier of images or texts; `hf:<id or folder>:layers=2` only the first two
  layers of its encoder; `:pool=mean` (or `first`, `pooler`) its encoder with this pooling and a new linear layer
- `timm:<name>`, `torchvision:<name>`: a net of these libraries, where they are installed
- `resnet8+head128`: any of them with Fed-ET's shared head of this width
- `resnet8:1bit`: any of them with one-bit weights, see `one_bit`
- `resnet8|resnet56`: the first stage of one net, and another net on its features (FedGKT)
- `package.module:factory`: your own net, `factory(classes: int, shape: tuple[int, ...]) -> torch.nn.Module`
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from types import MappingProxyType

from torch import nn

from fedfuse import signature
from fedfuse.models import (
    encoder,
    external,
    hf_name,
    mobile,
    one_bit,
    precision,
    resnet,
    shared_head,
    small,
    split,
    text,
    vgg,
)  # fmt: skip
from fedfuse.models.classifier import Classifier, Shape
from fedfuse.models.hugging_face import hugging_face
from fedfuse.models.norms import NORMS, Norm, is_norm
from fedfuse.types import FedfuseError

Build = Callable[[int, Shape], nn.Module]  # (classes, shape)

_SMALLEST = 8  # pixels; on smaller images, pools and strides leave nothing to convolve


@dataclass(frozen=True)
class Architecture:
    """An entry of the zoo. `make(norm, classes, shape)` builds it."""

    what: str
    paper: str
    norm: Norm
    make: Callable[[Norm, int, Shape], Classifier]

    @property
    def description(self) -> str:
        """One line, for `fedfuse list`."""
        return f"{self.what} ({self.paper}); norm: {self.norm}"


@dataclass(frozen=True)
class TextNet:
    """A net for texts. `make(classes, shape)` builds it for texts of shape (longest length, size of the vocabulary)."""

    what: str
    paper: str
    make: Build

    @property
    def description(self) -> str:
        """One line, for `fedfuse list`."""
        return f"texts: {self.what} ({self.paper})"


def _cifar_resnet(depth: int) -> Architecture:
    return Architecture(
        f"ResNet-{depth}, 16 to 64 channels", "He et al. 2016, section 4.2", "bn", partial(resnet.cifar, depth)
    )


_IMAGE_NETS = {
    "convnet": Architecture(
        "3 convolutions (convnet:5: 5), 2 dense layers", "FedBE, Chen & Chao 2021", "none", small.convnet
    ),
    "cnn": Architecture("2 convolutions, 4 hidden layers", "Fed-ET, Cho et al. 2022", "none", small.cnn),
    "lenet": Architecture("LeNet-5 with ReLU and max pools", "LeCun et al. 1998", "none", small.lenet),
    "resnet8": _cifar_resnet(8),
    "resnet20": _cifar_resnet(20),
    "resnet32": _cifar_resnet(32),
    "resnet44": _cifar_resnet(44),
    "resnet56": _cifar_resnet(56),
    "resnet10": Architecture(
        "ResNet-10, 64 to 512 channels, 3x3 stem; the size of Fed-ET's 'ResNet8'",
        "He et al. 2016",
        "bn",
        partial(resnet.wide, 1),
    ),
    "resnet18": Architecture(
        "ResNet-18, 64 to 512 channels, 3x3 stem", "He et al. 2016", "bn", partial(resnet.wide, 2)
    ),
    "vgg9": Architecture("VGG-9, hidden layers of 512", "FedMA, Wang et al. 2020", "none", partial(vgg.vgg, vgg.VGG9)),
    "vgg19": Architecture(
        "VGG-19, hidden layers of 512", "Simonyan & Zisserman 2014", "none", partial(vgg.vgg, vgg.VGG19)
    ),
    "mobilenetv2": Architecture("MobileNetV2 1x for small images", "Sandler et al. 2018", "bn", mobile.mobilenetv2),
    "shufflenetv2": Architecture("ShuffleNetV2 1x for small images", "Ma et al. 2018", "bn", mobile.shufflenetv2),
}
_VGGS: Mapping[str, vgg.Stages] = {"vgg9": vgg.VGG9, "vgg19": vgg.VGG19}
_MLP = Architecture("perceptron with any hidden widths", "McMahan et al. 2017", "none", partial(small.mlp, (64, 32)))

ZOO: Mapping[str, Architecture] = MappingProxyType({**_IMAGE_NETS, "mlp:64-32": _MLP})

TEXT_NETS: Mapping[str, TextNet] = MappingProxyType(
    {
        "bag": TextNet(
            "a mean of embeddings, 64 wide; bag:128 is wider", "for quick runs", partial(text.bag, text.BAG_WIDTH)
        ),
        "lstm": TextNet("LSTM, 2 layers of 256", "Fed-ET, Cho et al. 2022", text.lstm),
        "bert-tiny": TextNet(
            "BERT, 2 layers of 128", "Turc et al. 2019", partial(encoder.bert, "bert-tiny", 2, 128, 2)
        ),
        "bert-mini": TextNet(
            "BERT, 4 layers of 256", "Turc et al. 2019", partial(encoder.bert, "bert-mini", 4, 256, 4)
        ),
        "distilbert": TextNet(
            "DistilBERT, 6 layers of 768", "Sanh et al. 2019", partial(encoder.distilbert, "distilbert")
        ),
    }
)


def names() -> frozenset[str]:
    """The names of all nets here, without their options: `mlp`, not `mlp:64-32`."""
    return frozenset(name.partition(":")[0] for name in (*ZOO, *TEXT_NETS))


def build(name: str, *, classes: int, shape: Shape) -> nn.Module:
    """A fresh net (B, *shape) -> (B, classes). Its initial weights come from torch's global generator: seed it."""
    if classes < 1:
        raise FedfuseError(f"{name} cannot have {classes} classes: give 1 or more")
    if not shape or min(shape) < 1:
        raise FedfuseError(f"{name} cannot have inputs of shape {shape}: give (C, H, W) or (D,), or (L, V) for texts")
    if (both := split.parts(name)) is not None:
        return split.continued(*both, lambda part, inputs: build(part, classes=classes, shape=inputs), shape)
    plain, how = precision.split(name)
    if how is not None:
        return _in_precision(name, how, build(plain, classes=classes, shape=shape))
    base, width = shared_head.split(name)
    net = _resolve(base, features=width is not None)(classes, shape)
    return net if width is None else shared_head.with_shared_head(base, net, width, classes)


def _in_precision(name: str, how: precision.Precision, net: nn.Module) -> nn.Module:
    if how.one_bit is None:
        raise FedfuseError(
            f"{name} is not a net: {how.upload} is how a client uploads its model. Only models.clients names it; set "
            f'local.upload = "{how.upload}" for all clients'
        )
    return one_bit.binarise(name, net, how.one_bit)


def _resolve(name: str, features: bool = False) -> Build:
    """The function that builds this net. With `features` it should be a Classifier, where that can be chosen."""
    if name.startswith(signature.LOCAL):
        return partial(external.own, name)
    base, *options = name.split(":")
    if base == "mlp":
        return _mlp(name, options)
    if base == "convnet" and options and options[0].isdecimal():
        return _image_net(name, _deeper_convnet(name, options.pop(0)), options)
    if base in _VGGS and len(options) == 2:
        return _image_net(name, _widened_vgg(name, base, options.pop()), options)
    if base in _IMAGE_NETS:
        return _image_net(name, _IMAGE_NETS[base], options)
    if base in TEXT_NETS:
        return _text_net(name, base, options)
    _, colon, rest = name.partition(":")
    if name.startswith(hf_name.MARK) and rest:
        return partial(hugging_face, name, features=features)
    if base in external.LIBRARIES and rest:
        return partial(external.from_library, base, rest)
    if colon and rest.isidentifier() and not is_norm(rest):  # resnt8:gn is a typo, not a module
        return partial(external.own, name)
    raise _unknown(name, base)


def _image_net(name: str, net: Architecture, options: list[str]) -> Build:
    norm = _norm(name, options, net.norm)

    def make(classes: int, shape: Shape) -> Classifier:
        if len(shape) != 3 or min(shape[1:]) < _SMALLEST:
            raise FedfuseError(
                f"{name} needs images (C, H, W) of at least {_SMALLEST}x{_SMALLEST}, but the inputs are {shape}:"
                " choose mlp:64-32, or resize the data"
            )
        return net.make(norm, classes, shape)

    return make


def _text_net(name: str, base: str, options: list[str]) -> Build:
    build_net = TEXT_NETS[base].make
    if options:
        widths = _widths(options[0]) if len(options) == 1 and base == "bag" else None
        if widths is None or len(widths) != 1:
            raise FedfuseError(f"{name}: only bag has an option, the width of its embeddings, as in bag:128")
        build_net = partial(text.bag, widths[0])

    def make(classes: int, shape: Shape) -> nn.Module:
        if len(shape) != 2:
            raise FedfuseError(
                f"{name} reads texts of shape (longest length, size of the vocabulary), but the inputs are {shape}: "
                "choose mlp:64-32 or, for images, resnet8"
            )
        return build_net(classes, shape)

    return make


def _mlp(name: str, options: list[str]) -> Build:
    widths, *norms = options or [""]
    if (hidden := _widths(widths)) is None:
        raise FedfuseError(f"{name} has no hidden widths: give positive whole numbers joined by '-', as in mlp:64-32")
    return partial(small.mlp, hidden, _norm(name, norms, _MLP.norm))


def _deeper_convnet(name: str, depth: str) -> Architecture:
    least, most = small.DEPTHS[0], small.DEPTHS[-1]
    if len(depth) > 3 or int(depth) not in small.DEPTHS:
        raise FedfuseError(f"{name} has {depth} convolutions: give {least} to {most}, as in convnet:5")
    return replace(_IMAGE_NETS["convnet"], make=partial(small.convnet, depth=int(depth)))


def _widened_vgg(name: str, base: str, text: str) -> Architecture:
    widths, number = _widths(text), sum(map(len, _VGGS[base])) + len(vgg.HIDDEN)
    if widths is None or len(widths) != number:
        raise FedfuseError(
            f"{name} has the widths {text!r}: give {number} positive whole numbers joined by '-', one for each"
            f" convolution and hidden layer of {base}"
        )
    stages, hidden = vgg.widened(_VGGS[base], widths)
    return replace(_IMAGE_NETS[base], make=partial(vgg.vgg, stages, hidden=hidden))


def _widths(text: str) -> tuple[int, ...] | None:
    if not re.fullmatch(r"[1-9][0-9]*(-[1-9][0-9]*)*", text):
        return None
    return tuple(int(width) for width in text.split("-"))


def with_widths(name: str, widths: Sequence[int]) -> str:
    """The name of this perceptron or VGG with other widths: `mlp:64-32` and (70, 41) -> `mlp:70-41`."""
    base, *options = name.split(":")
    text = "-".join(map(str, widths))
    if base == "mlp":
        return ":".join([base, text, *options[1:]])
    if base in _VGGS:
        return ":".join([base, options[0] if options else _IMAGE_NETS[base].norm, text])
    raise FedfuseError(f"{name} cannot have other widths: choose mlp:64-32, {' or '.join(_VGGS)}")


def _norm(name: str, options: list[str], default: Norm) -> Norm:
    suffix = ":".join(options) if options else default
    if is_norm(suffix):
        return suffix
    raise FedfuseError(
        f"{name}: unknown norm {suffix!r}: choose one of {', '.join(NORMS)}, as in resnet8:gn; gn4 has 4 groups"
    )


def _unknown(name: str, base: str) -> FedfuseError:
    close = get_close_matches(base, (*ZOO, *TEXT_NETS), n=1)
    hint = f" Did you mean {name.replace(base, close[0], 1)!r}?" if close else ""
    return FedfuseError(
        f"unknown architecture {name!r}.{hint} Choose one of {', '.join(ZOO)} (each also with :bn, :gn or :none),"
        f" for texts {', '.join(TEXT_NETS)}, hf:<id or folder> or package.module:factory"
    )
