"""The folder of a fusion: the student, a report, and what it was made of."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import nn

from fedfuse.files import remedy, write_whole
from fedfuse.in_hand.fusion_file import FUSION, REPORT, hashes
from fedfuse.in_hand.logit_cache import WithoutRow
from fedfuse.in_hand.readings import NamedModel, TextReading
from fedfuse.in_hand.result import Fused
from fedfuse.in_hand.teachers import Names
from fedfuse.models import transformers_folder
from fedfuse.models.file import MODEL, Header, write_model
from fedfuse.models.hugging_face import Logits, quiet
from fedfuse.records.sealed import write_json
from fedfuse.types import FedfuseError, Snapshot

PROCESSOR = "preprocessor_config.json"


def check_folder(out: Path) -> None:
    """Refuse a folder that holds something."""
    if (out / FUSION).exists():
        raise FedfuseError(f"--out {out} holds an earlier fusion: choose another --out")
    if out.is_dir() and any(out.iterdir()):
        raise FedfuseError(f"--out {out} is not empty: choose a new folder")
    if out.exists() and not out.is_dir():
        raise FedfuseError(f"--out {out} is a file: name a folder")
    above = next(folder for folder in out.absolute().parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise FedfuseError(f"--out {out}: nothing can be written to {above}: choose another --out")


def write_folder(
    out: Path, learner: NamedModel, fused: Fused, labels: Names, facts: Mapping[str, Any], *, report: bool
) -> Path | None:
    """Write the student, the report and `fusion.json`. The folder appears complete or not at all."""
    assert isinstance(fused.model, WithoutRow)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
            fresh = Path(scratch, "new")
            fresh.mkdir()
            _write_student(fresh, learner, fused.model.net.cpu().eval(), labels)
            if report:
                fused.report(fresh / REPORT)
            write_json(fresh / FUSION, {**facts, "files": hashes(fresh)}, indent=1)
            fresh.rename(out)
    except OSError as error:
        raise FedfuseError(f"--out {out}: {error.strerror or error}: {remedy(error)}") from error
    return out / REPORT if report else None


def _write_student(folder: Path, learner: NamedModel, net: nn.Module, labels: Names) -> None:
    if isinstance(learner.reading, TextReading):
        _save_pretrained(net, folder, labels)
        learner.reading.tokenizer.save_pretrained(folder)
        return
    shape, mean, std = learner.reading.shape, learner.reading.mean, learner.reading.std
    arch = learner.arch
    if not transformers_folder.holds(arch) or not isinstance(net, Logits):
        header = Header(arch=arch, classes=len(labels), shape=shape, mean=mean, std=std, labels=labels)
        snapshot = Snapshot.of(arch, net)
        write_model(folder / MODEL, header, {**snapshot.params, **snapshot.buffers})
        return
    _save_pretrained(net.net, folder, labels)
    size = {"height": shape[1], "width": shape[2]}
    processor = learner.processor or {"size": size, "image_mean": list(mean), "image_std": list(std)}
    write_whole(folder / PROCESSOR, json.dumps(dict(processor), indent=2).encode())
    arch = transformers_folder.without_path(arch)
    header = Header(arch=arch, classes=len(labels), shape=shape, mean=mean, std=std, labels=labels)
    write_model(folder / MODEL, header, safetensors.torch.load_file(folder / MODEL), for_transformers=True)


def _save_pretrained(net: Any, folder: Path, labels: Names) -> None:
    """Write config.json, with the names of the classes, and the weights as one file."""
    net.config.id2label = dict(enumerate(labels))
    net.config.label2id = {label: number for number, label in enumerate(labels)}
    net.config._name_or_path = ""  # a local path is nobody's business
    with quiet():
        net.save_pretrained(folder, max_shard_size="1000GB")
