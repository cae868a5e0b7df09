"""Folders of `hf:` models that transformers can read. No code from a folder is run, and no pickle is opened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from fedfuse import rng
from fedfuse.models import shared_head, split
from fedfuse.models.encoder import library
from fedfuse.models.hf_name import MARK, parse
from fedfuse.models.hugging_face import Logits, configuration, kind_of, own_pooling, with_call
from fedfuse.types import FedfuseError, Snapshot, Tensors

ENCODER = "encoder.json"  # the encoder's configuration, in the folder of an exported net whose trunk it is


def holds(arch: str) -> bool:
    """Whether the whole net, and not just a part of it, is a transformers model."""
    if not arch.startswith(MARK) or split.parts(arch) is not None or shared_head.split(arch)[1] is not None:
        return False
    return parse(arch).pool is None


def write(folder: Path, arch: str, tensors: Tensors, labels: tuple[str, ...]) -> None:
    """Write `config.json`, and the weights under transformers' names."""
    auto, config = library(arch), _config(arch, labels)
    with rng.ambient(rng.generator(0, "export")):
        net = with_call(auto, kind_of(auto, config).from_config(config, trust_remote_code=False)).float()
    Snapshot(arch, tensors, tensors).load_into(net)
    model: Any = net.net if isinstance(net, Logits) else net
    model.save_pretrained(folder, max_shard_size="1000GB")  # one file: load_model reads its header


def write_encoder(folder: Path, arch: str, tensors: Tensors) -> str:
    """Write the configuration of the encoder of a net with a trunk from transformers. Return the net's name without
    a path, with its pooling; of other nets only the name.
    """
    base, width = shared_head.split(arch)
    if not base.startswith(MARK) or split.parts(arch) is not None:
        return arch
    named, auto = parse(base), library(arch)
    pooler = any(".pooler." in name for name in tensors)
    pool = named.pool or own_pooling(named) or ("pooler" if pooler else "mean")
    config = configuration(auto, named)
    config._name_or_path = ""  # do not export a local path
    config.to_json_file(folder / ENCODER)
    return shared_head.with_head(str(replace(named, pool=pool).without_path()), width)


def with_encoder(folder: Path, arch: str) -> str:
    """The name by which to build a net of an exported folder: with the encoder's configuration that lies there."""
    base, width = shared_head.split(arch)
    if not base.startswith(MARK) or split.parts(arch) is not None or not (folder / ENCODER).is_file():
        return arch
    return shared_head.with_head(str(replace(parse(base), source=str(folder / ENCODER))), width)


def read(folder: Path, classes: int) -> nn.Module:
    """Load the net of a folder. Raise a ValueError if weights are missing: transformers would draw them at random."""
    auto = library(f"{MARK}{folder}")
    config = auto.AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    net, loading = kind_of(auto, config).from_pretrained(
        str(folder), use_safetensors=True, trust_remote_code=False, local_files_only=True, output_loading_info=True
    )
    if wrong := [*loading["missing_keys"], *loading["unexpected_keys"], *loading["mismatched_keys"]]:
        raise ValueError(
            f"its weights do not match its configuration: {wrong[0]} is missing, unexpected or of another shape"
        )
    if net.config.num_labels != classes:
        raise ValueError(f"its configuration has {net.config.num_labels} classes, its weights {classes}")
    return with_call(auto, net).float()


def _config(arch: str, labels: tuple[str, ...]) -> Any:
    try:
        config = configuration(
            library(arch),
            parse(arch),
            id2label=dict(enumerate(labels)),
            label2id={label: i for i, label in enumerate(labels)},
        )
    except (OSError, ValueError) as error:
        raise FedfuseError(
            f"{arch}: the export needs the model's configuration, which cannot be read ({error}): put it back "
            "where the run read it"
        ) from error
    config._name_or_path = ""  # do not export a local path
    return config


def without_path(arch: str) -> str:
    """The name of an exported model: for a local folder only its last part, not its path."""
    return str(parse(arch).without_path())
