"""Export a trained model as a folder for a model hub: safetensors, configuration, model card."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import safetensors.torch
from torch import Tensor

from fedfuse import signature
from fedfuse.export.card import Records, card
from fedfuse.files import write_whole
from fedfuse.models import transformers_folder
from fedfuse.models.file import (
    MODEL,
    TOKENIZER,
    Header,
    checked_tensors,
    imports_code,
    read_header,
    tokenizer_beside,
    write_model,
)
from fedfuse.records import checkpoint
from fedfuse.records.directory import CHECKPOINTS, EXPERIMENT, MODELS
from fedfuse.records.stored import StoredRun
from fedfuse.signature import did_you_mean
from fedfuse.tree import equal
from fedfuse.types import DamagedError, FedfuseError

CONFIG, README = "config.json", "README.md"


def export_hub_folder(
    run: str | Path, folder: str | Path, *, model: str | None = None, license: str | None = None, force: bool = False
) -> Header:
    """Write the run's model into `folder`, which `fedfuse.load_model` reads, and return its header.

    A new folder appears complete or not at all. In an existing folder only `model.safetensors`, `config.json`,
    `README.md` and, for texts, `tokenizer.json` are written, and replaced only with `force`.
    """
    run, folder = Path(run), Path(folder)
    if folder.resolve().is_relative_to(run.resolve()):
        raise FedfuseError(
            f"--hub-folder {folder} is in the run directory, which is not changed: choose another folder"
        )
    records = read_records(run)
    file, header = choose_model(run, records, model)
    refuse_local_net(header.arch, "--hub-folder")
    _refuse_to_overwrite(folder, force)
    try:
        with _staging(folder) as fresh:
            header = _write_model(fresh, file, header)
            if (tokenizer := tokenizer_beside(file, header)) is not None:
                write_whole(fresh / TOKENIZER, tokenizer.read_bytes())
            text = card(records, header, _count(file), license, own_code=bool(imports_code(header.arch)))
            write_whole(fresh / README, text.encode())
    except OSError as error:
        raise FedfuseError(f"--hub-folder {folder}: {error.strerror or error}") from error
    return header


def read_records(path: Path) -> Records:
    """The records of a run directory. Nothing that the experiment names is imported."""
    if not (path / EXPERIMENT).is_file():
        raise FedfuseError(f"{path}: not a run directory: it has no {EXPERIMENT}")
    run = StoredRun.open(path)
    if not run.finished or run.federation is None or not any((path / MODELS).glob("*.safetensors")):
        raise FedfuseError(
            f"{path}: {len(run.history)} of {run.rounds} rounds are recorded, and the models are written when a run "
            "ends: finish it with --resume, then export (an algorithm without a server model has none to export)"
        )
    return Records(run.experiment, run.federation, run.history)


def refuse_local_net(arch: str, option: str) -> None:
    """Raise an error if only the process that trained the net can build it."""
    if signature.LOCAL in arch:
        raise FedfuseError(
            f"{option}: {arch} is built by a Python object of the process that trained it, so nobody could "
            "load it: define its function at the top level of a module, and train it from there"
        )


def choose_model(run: Path, records: Records, wanted: str | None) -> tuple[Path, Header]:
    """The model `wanted`; by default the only one of the run, or the only one that it reports."""
    models = {header.arch: (file, header) for file, header in _models(run)}
    if wanted is not None:
        if wanted not in models:
            hint = did_you_mean(wanted, models)
            raise FedfuseError(f"--model {wanted}: {run} has no such model{hint} It has: {', '.join(models)}")
        return models[wanted]
    reported = [arch for arch in records.federation.reported if arch in models]
    candidates = list(models) if len(models) == 1 else reported
    if len(candidates) != 1:
        raise FedfuseError(f"{run} has several models: choose one with --model, of {', '.join(models)}")
    return models[candidates[0]]


def _models(run: Path) -> Iterator[tuple[Path, Header]]:
    for file in sorted((run / MODELS).glob("*.safetensors")):
        yield file, read_header(file)


def _refuse_to_overwrite(folder: Path, force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise FedfuseError(f"--hub-folder {folder} is a file: name a folder")
    existing = [name for name in (MODEL, CONFIG, README, TOKENIZER) if (folder / name).exists()]
    if existing and not force:
        raise FedfuseError(
            f"--hub-folder {folder} has a {existing[0]} already: choose another folder, or write over it with --force"
        )


def _write_model(folder: Path, file: Path, header: Header) -> Header:
    """Write weights and configuration, and return the exported model's header, without a local path."""
    tensors = _tensors_of_run(file, header)
    if not transformers_folder.holds(header.arch):
        arch = transformers_folder.write_encoder(folder, header.arch, tensors)
        header = header.model_copy(update={"arch": arch})
        write_model(folder / MODEL, header, tensors)
        config = {"library_name": "fedfuse", **header.plain()}
        write_whole(folder / CONFIG, json.dumps(config, indent=2).encode())
        return header
    transformers_folder.write(folder, header.arch, tensors, header.labels)
    portable = header.model_copy(update={"arch": transformers_folder.without_path(header.arch)})
    write_model(folder / MODEL, portable, safetensors.torch.load_file(folder / MODEL), for_transformers=True)
    return portable


def _tensors_of_run(file: Path, header: Header) -> dict[str, Tensor]:
    """Read the model's tensors. They must be those of the run's last checkpoint, not a model of another run."""
    tensors = checked_tensors(file, header)
    in_checkpoint = checkpoint.model(file.parent.parent / CHECKPOINTS, header.arch)
    if in_checkpoint is not None and not equal({**in_checkpoint.params, **in_checkpoint.buffers}, tensors):
        raise DamagedError(f"{file}: is not the model of this run's last round: give the run's command with --resume")
    return tensors


def _count(file: Path) -> int:
    return sum(tensor.numel() for tensor in safetensors.torch.load_file(file).values())


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """A hidden sibling to write into. At the end it is renamed to `folder`, or its files move into an existing one."""
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    fresh.mkdir()
    try:
        yield fresh
        if folder.exists():  # it may be a clone of a hub repository: keep its other files
            for file in sorted(fresh.iterdir()):
                file.replace(folder / file.name)
        else:
            fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
