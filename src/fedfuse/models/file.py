"""Model files: a safetensors state dict with a header that says how to build the net."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, PositiveInt
from torch import Tensor, nn

from fedfuse import models, rng
from fedfuse.files import slug, write_whole
from fedfuse.models import external, shared_head, split, transformers_folder
from fedfuse.types import FedfuseError, Snapshot, Tensors, saved_buffers

HEADER = "fedfuse"
MODEL = "model.safetensors"  # the model file in an exported folder
TOKENIZER = "tokenizer.json"  # beside the file of a model of texts


class Header(BaseModel):
    """How to build a model's net, how to normalise its inputs, and the names of its classes."""

    model_config = ConfigDict(frozen=True)

    arch: str
    classes: PositiveInt
    shape: tuple[PositiveInt, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    labels: tuple[str, ...]
    tokenizer: str | None = None  # of a model of texts: the SHA-256 of the tokenizer.json beside it
    sha256: str | None = None  # of the tensors and all of the above

    def plain(self) -> dict[str, Any]:
        """Return the header's fields as JSON values. A model without a tokenizer has no such field."""
        return self.model_dump(exclude=None if self.tokenizer else {"tokenizer"})

    def with_hash(self, tensors: Tensors) -> Header:
        """Return the header with the hash of itself and these tensors."""
        digest = hashlib.sha256(
            json.dumps({k: v for k, v in self.plain().items() if k != "sha256"}, sort_keys=True).encode()
        )
        for name, tensor in sorted(tensors.items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        return self.model_copy(update={"sha256": digest.hexdigest()})

    def check(self, tensors: Tensors, path: Path) -> None:
        """Refuse tensors or a header that are not as they were written."""
        if self.sha256 is not None and self.with_hash(tensors).sha256 != self.sha256:
            raise FedfuseError(
                f"{path}: its SHA-256 does not match its header: it was damaged; restore or export it again"
            )


@dataclass(frozen=True)
class Loaded:
    """A net in eval mode, and how to normalise its inputs: (x / 255 - mean) / std for uint8 images."""

    net: nn.Module
    arch: str
    classes: int
    shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    labels: tuple[str, ...]
    tokenizer: Path | None = None  # of a model of texts: the tokenizer.json that its inputs were encoded with


def file_name(arch: str) -> str:
    return f"{slug(arch, '_')}.safetensors"


def save_model(folder: Path, snapshot: Snapshot, header: Header, tokenizer: str | None = None) -> Path:
    """Write the model as `<architecture>.safetensors`, readable by any safetensors reader.

    tokenizer: the content of the tokenizer.json of a model of texts, which is written beside it.
    """
    path = folder / file_name(snapshot.arch)
    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer is not None:
        write_whole(folder / TOKENIZER, tokenizer.encode())
        header = header.model_copy(update={"tokenizer": hashlib.sha256(tokenizer.encode()).hexdigest()})
    write_model(path, header, {**snapshot.params, **snapshot.buffers})
    return path


def write_model(path: Path, header: Header, tensors: Tensors, *, for_transformers: bool = False) -> None:
    """Write a model file. For transformers, its metadata also states the format.

    Otherwise the metadata has one entry: safetensors writes several in arbitrary order, and the same model must give
    the same bytes.
    """
    header = header.with_hash(tensors)
    metadata = {HEADER: json.dumps(header.plain()), **({"format": "pt"} if for_transformers else {})}
    write_whole(path, safetensors.torch.save({k: t.contiguous() for k, t in tensors.items()}, metadata=metadata))


def read_header(path: Path) -> Header:
    """Read the header of a model file."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return Header.model_validate_json((file.metadata() or {})[HEADER])
    except (OSError, safetensors.SafetensorError, KeyError, ValueError) as error:
        raise FedfuseError(f"{path}: not a model written by fedfuse: {error}") from error


def load_model(path: str | Path, *, trust_code: bool = False) -> Loaded:
    """Load the net of a file that a run wrote, or of a folder that `fedfuse export` wrote, ready to predict.

    The content is not trusted. The tensors must be those of the net in the header, and a net of
    `package.module:factory` is built only with `trust_code`, since importing a module runs it.
    """
    folder = Path(path) if Path(path).is_dir() else None
    file = Path(path) if folder is None else folder / MODEL
    header = read_header(file)
    try:
        if folder is not None and transformers_folder.holds(header.arch):
            checked_tensors(file, header)
            net = transformers_folder.read(folder, header.classes)
        else:
            named = header if folder is None else _with_encoder(folder, header)
            net = _with_tensors(named, checked_tensors(file, header), trust_code)
    except (OSError, safetensors.SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise FedfuseError(f"{path}: not a model written by fedfuse: {error}") from error
    fields = header.model_dump(exclude={"sha256", "tokenizer"})
    return Loaded(net.eval(), **fields, tokenizer=tokenizer_beside(file, header))


def tokenizer_beside(file: Path, header: Header) -> Path | None:
    """Return the tokenizer.json of a model of texts; None if it has none, or if that was taken away."""
    path = file.parent / TOKENIZER
    if header.tokenizer is None or not path.is_file():
        return None
    if hashlib.sha256(path.read_bytes()).hexdigest() != header.tokenizer:
        raise FedfuseError(f"{path}: is not the tokenizer of {file.name}: restore it, or export the model again")
    return path


def _with_encoder(folder: Path, header: Header) -> Header:
    return header.model_copy(update={"arch": transformers_folder.with_encoder(folder, header.arch)})


def checked_tensors(path: Path, header: Header) -> dict[str, Tensor]:
    """Read the tensors of a model file, and compare them with the header's hash."""
    tensors: dict[str, Tensor] = safetensors.torch.load_file(path)
    header.check(tensors, path)
    return tensors


def _with_tensors(header: Header, tensors: Tensors, trust_code: bool) -> nn.Module:
    factories = imports_code(header.arch)
    if factories and not trust_code:
        raise FedfuseError(
            f"the net is built by {factories[0]}, and importing that module runs its code: if you trust it, use "
            "load_model(path, trust_code=True)"
        )
    if not factories:
        with torch.device("meta"):  # takes no memory, whatever sizes the header asks for
            _build(header, tensors)
    with rng.ambient(rng.generator(0, "load_model")), torch.no_grad():
        net, own = _build(header, tensors)
        for name, tensor in tensors.items():
            own[name].copy_(tensor)
    return net


def _build(header: Header, tensors: Tensors) -> tuple[nn.Module, dict[str, Tensor]]:
    """A fresh net and its tensors by name. Raise a ValueError unless `tensors` has the same names and shapes."""
    net = models.build(header.arch, classes=header.classes, shape=header.shape)
    own: dict[str, Tensor] = dict(net.named_parameters()) | saved_buffers(net)
    shapes = {name: tuple(t.shape) for name, t in own.items()}
    in_file = {name: tuple(t.shape) for name, t in tensors.items()}
    for name in sorted({*shapes, *in_file}):
        if shapes.get(name) != in_file.get(name):
            raise ValueError(
                f"{name!r} has shape {shapes.get(name)} in {header.arch}, but {in_file.get(name)} in the file"
            )
    return net, own


def imports_code(arch: str) -> list[str]:
    """The parts of an architecture's name that import a module when they are built."""
    builtin = {"hf", *external.LIBRARIES, *models.names()}
    parts = (shared_head.split(part)[0] for part in arch.split(split.MARK))
    return [part for part in parts if ":" in part and part.partition(":")[0] not in builtin]
