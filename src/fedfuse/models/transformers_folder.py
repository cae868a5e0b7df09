"""Models of `hf:` as folders that transformers reads by itself: no code of a folder is run, and no pickle is opened."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from fedfuse import rng
from fedfuse.models.external import Logits
from fedfuse.types import FedfuseError, Snapshot, Tensors

MARK = "hf:"


def holds(arch: str) -> bool:
    """Whether the whole net is one of transformers, and not a part of it."""
    return arch.startswith(MARK) and "|" not in arch


def write(folder: Path, arch: str, tensors: Tensors, labels: tuple[str, ...]) -> None:
    """`config.json`, and the weights by the names that transformers gives them."""
    auto = _transformers(arch).AutoModelForImageClassification
    with rng.ambient(rng.generator(0, "export")):
        net = Logits(auto.from_config(_config(arch, labels), trust_remote_code=False)).float()
    Snapshot(arch, tensors, tensors).load_into(net)
    wrapped: Any = net.net
    wrapped.save_pretrained(folder, max_shard_size="1000GB")  # one file: load_model reads its header


def read(folder: Path, classes: int) -> nn.Module:
    """The net of a folder, if all its weights are there: transformers would draw those that are not."""
    auto = _transformers(f"{MARK}{folder}").AutoModelForImageClassification
    net, found = auto.from_pretrained(
        str(folder), use_safetensors=True, trust_remote_code=False, local_files_only=True, output_loading_info=True
    )
    if wrong := [*found["missing_keys"], *found["unexpected_keys"], *found["mismatched_keys"]]:
        raise ValueError(f"its weights are not those of its configuration, as {wrong[0]} shows")
    if net.config.num_labels != classes:
        raise ValueError(f"its configuration has {net.config.num_labels} classes, its weights {classes}")
    return Logits(net).float()


def _config(arch: str, labels: tuple[str, ...]) -> Any:
    source = arch.removeprefix(MARK)
    where = Path(source).expanduser()
    try:
        config = _transformers(arch).AutoConfig.from_pretrained(
            str(where) if where.is_dir() else source,
            id2label=dict(enumerate(labels)),
            label2id={label: i for i, label in enumerate(labels)},
            trust_remote_code=False,
        )
    except (OSError, ValueError) as error:
        raise FedfuseError(
            f"{arch}: a transformers model is exported with its configuration, which is to be had where the run had "
            f"it from, and that cannot be read now: {error}"
        ) from error
    config._name_or_path = ""  # a folder of this machine is nobody's business
    return config


def without_path(arch: str) -> str:
    """The name of an exported model: of a folder of this machine only its last part, and no path."""
    source = Path(arch.removeprefix(MARK)).expanduser()
    return f"{MARK}{source.name}" if source.is_dir() or source.is_absolute() else arch


def _transformers(arch: str) -> Any:
    try:
        return import_module("transformers")
    except ImportError as error:
        raise FedfuseError(f'{arch} needs transformers: `pip install "fedfuse[hf]"`') from error
