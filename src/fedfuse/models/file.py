"""A trained model as a file of its own: a safetensors state dict that says how to build its net."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, PositiveInt
from torch import Tensor, nn

from fedfuse import models, rng
from fedfuse.files import slug, write_whole
from fedfuse.models import shared_head, split, transformers_folder
from fedfuse.types import FedfuseError, Snapshot, Tensors

HEADER = "fedfuse"
MODEL = "model.safetensors"  # the file of an exported folder


class Header(BaseModel):
    """How a model's net is built, how its inputs are normalised, and what its answers are called."""

    model_config = ConfigDict(frozen=True)

    arch: str
    classes: PositiveInt
    shape: tuple[PositiveInt, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Loaded:
    """A net in eval mode, and how its inputs are to be normalised: (x / 255 - mean) / std for uint8 images."""

    net: nn.Module
    arch: str
    classes: int
    shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    labels: tuple[str, ...]


def file_name(arch: str) -> str:
    return f"{slug(arch, '_')}.safetensors"


def save_model(folder: Path, snapshot: Snapshot, header: Header) -> Path:
    """Write the model as `<architecture>.safetensors`, readable by any safetensors reader."""
    path = folder / file_name(snapshot.arch)
    folder.mkdir(parents=True, exist_ok=True)
    write_model(path, header, {**snapshot.params, **snapshot.buffers})
    return path


def write_model(path: Path, header: Header, tensors: Tensors, *, for_transformers: bool = False) -> None:
    """For transformers the file also says its format. Else it has one entry: safetensors writes several in any order,
    and the same model is to be the same bytes."""
    metadata = {HEADER: json.dumps(header.model_dump()), **({"format": "pt"} if for_transformers else {})}
    write_whole(path, safetensors.torch.save({k: t.contiguous() for k, t in tensors.items()}, metadata=metadata))


def read_header(path: Path) -> Header:
    """What a model file says of itself."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return Header.model_validate_json((file.metadata() or {})[HEADER])
    except (OSError, safetensors.SafetensorError, KeyError, ValueError) as error:
        raise FedfuseError(f"{path}: not a model written by fedfuse: {error}") from error


def load_model(path: str | Path, *, trust_code: bool = False) -> Loaded:
    """The net of a file that a run wrote, or of a folder that `fedfuse export` wrote, ready to predict.

    Neither is believed: the tensors must be those of the net that it names, and a net that is built by a module of
    somebody's, `package.module:factory`, is built only with `trust_code`, since importing a module runs it.
    """
    folder = Path(path) if Path(path).is_dir() else None
    file = Path(path) if folder is None else folder / MODEL
    header = read_header(file)
    try:
        if folder is not None and transformers_folder.holds(header.arch):
            net = transformers_folder.read(folder, header.classes)
        else:
            net = _with_tensors(header, safetensors.torch.load_file(file), trust_code)
    except (OSError, safetensors.SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise FedfuseError(f"{path}: not a model written by fedfuse: {error}") from error
    return Loaded(net.eval(), **dict(header))


def _with_tensors(header: Header, tensors: Tensors, trust_code: bool) -> nn.Module:
    theirs = imports_code(header.arch)
    if theirs and not trust_code:
        raise FedfuseError(
            f"the net is built by {theirs[0]}, whose module would be imported and so run: if you trust that module, "
            "load_model(path, trust_code=True)"
        )
    if not theirs and not header.arch.startswith(transformers_folder.MARK):
        with torch.device("meta"):  # which takes no memory, whatever sizes a header asks for
            _own(header, tensors)
    with rng.ambient(rng.generator(0, "load_model")), torch.no_grad():
        net, own = _own(header, tensors)
        for name, tensor in tensors.items():
            own[name].copy_(tensor)
    return net


def _own(header: Header, tensors: Tensors) -> tuple[nn.Module, dict[str, Tensor]]:
    """A fresh net and its tensors by name, which are to take those of the file: all of them, and no others."""
    net = models.build(header.arch, classes=header.classes, shape=header.shape)
    own: dict[str, Tensor] = dict(net.named_parameters()) | dict(net.named_buffers())
    shapes = {name: tuple(t.shape) for name, t in own.items()}
    given = {name: tuple(t.shape) for name, t in tensors.items()}
    for name in sorted({*shapes, *given}):
        if shapes.get(name) != given.get(name):
            raise ValueError(f"{header.arch} has for {name!r} the shape {shapes.get(name)}, the file {given.get(name)}")
    return net, own


def imports_code(arch: str) -> list[str]:
    """The parts of an architecture's name that import a module when they are built."""
    ours = {"hf", *(name.partition(":")[0] for name in models.ZOO)}
    parts = (shared_head.split(part)[0] for part in arch.split(split.MARK))
    return [part for part in parts if ":" in part and part.partition(":")[0] not in ours]
