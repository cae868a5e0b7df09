"""A trained model as a file of its own: a safetensors state dict that says how to build its net."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import nn

from fedfuse import models
from fedfuse.checkpoint import write_whole
from fedfuse.data.examples import Examples
from fedfuse.types import FedfuseError, Snapshot

HEADER = "fedfuse"


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
    return re.sub(r"[^A-Za-z0-9._-]+", "-", arch).strip("-.") + ".safetensors"


def save_model(folder: Path, snapshot: Snapshot, data: Examples, labels: Sequence[str]) -> Path:
    """Write the model as `<architecture>.safetensors`, readable by any safetensors reader."""
    header = {
        "arch": snapshot.arch,
        "classes": data.classes,
        "shape": list(data.shape),
        "mean": data.mean.tolist(),
        "std": data.std.tolist(),
        "labels": list(labels),
    }
    tensors = {name: t.contiguous() for name, t in {**snapshot.params, **snapshot.buffers}.items()}
    path = folder / file_name(snapshot.arch)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(path, safetensors.torch.save(tensors, metadata={HEADER: json.dumps(header)}))
    return path


def load_model(path: str | Path) -> Loaded:
    """The net of a file that a run wrote, ready to predict."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})[HEADER])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a mapping)
        shape = tuple(header["shape"])
        net = models.build(header["arch"], classes=header["classes"], shape=shape)
        own = dict(net.named_parameters()) | dict(net.named_buffers())
        with torch.no_grad():
            for name, tensor in tensors.items():
                own[name].copy_(tensor)
    except (OSError, safetensors.SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise FedfuseError(f"{path}: not a model written by fedfuse: {error}") from error
    return Loaded(
        net.eval(),
        header["arch"],
        header["classes"],
        shape,
        tuple(header["mean"]),
        tuple(header["std"]),
        tuple(header["labels"]),
    )
