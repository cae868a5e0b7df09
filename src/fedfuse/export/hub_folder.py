"""A trained model as a folder for a model hub: safetensors, configuration, model card."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import safetensors.torch

from fedfuse.export.card import Records, card
from fedfuse.files import write_whole
from fedfuse.models import transformers_folder
from fedfuse.models.file import MODEL, Header, imports_code, read_header, write_model
from fedfuse.records.directory import EXPERIMENT, MODELS
from fedfuse.records.stored import StoredRun
from fedfuse.signature import did_you_mean
from fedfuse.types import FedfuseError

CONFIG, README = "config.json", "README.md"


def export_hub_folder(
    run: str | Path, folder: str | Path, *, model: str | None = None, license: str | None = None, force: bool = False
) -> Header:
    """Write the run's model into `folder`, which `fedfuse.load_model` reads; what it was is the result.

    The folder appears whole or not at all. In one that exists, only these three files are written, and over others
    of their names only with `force`.
    """
    run, folder = Path(run), Path(folder)
    if folder.resolve().is_relative_to(run.resolve()):
        raise FedfuseError(f"--hub-folder {folder} is in the run directory, which stays as it is: choose another place")
    records = read_records(run)
    file, header = _chosen(run, records, model)
    _refuse_to_overwrite(folder, force)
    try:
        with _appearing(folder) as fresh:
            header = _write_model(fresh, file, header)
            text = card(records, header, _count(file), license, own_code=bool(imports_code(header.arch)))
            write_whole(fresh / README, text.encode())
    except OSError as error:
        raise FedfuseError(f"--hub-folder {folder}: {error.strerror or error}") from error
    return header


def read_records(path: Path) -> Records:
    """What the run directory holds, as text: nothing that an experiment names is imported."""
    if not (path / EXPERIMENT).is_file():
        raise FedfuseError(f"{path}: not the directory of a run: it has no {EXPERIMENT}")
    run = StoredRun.open(path)
    if not run.finished or run.federation is None or not any((path / MODELS).glob("*.safetensors")):
        raise FedfuseError(
            f"{path}: {len(run.history)} of {run.rounds} rounds are on record, and the models are written when a run "
            "ends: finish it with --resume, then export"
        )
    return Records(run.experiment, run.federation, run.history)


def _chosen(run: Path, records: Records, wanted: str | None) -> tuple[Path, Header]:
    """The model that was asked for, or else the one that the run reports, if that is one."""
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
    taken = [name for name in (MODEL, CONFIG, README) if (folder / name).exists()]
    if taken and not force:
        raise FedfuseError(
            f"--hub-folder {folder} has a {taken[0]} already: choose another folder, or write over it with --force"
        )


def _write_model(folder: Path, file: Path, header: Header) -> Header:
    """Weights and configuration; the header is that of the folder, where the model is at home now."""
    tensors = safetensors.torch.load_file(file)
    if not transformers_folder.holds(header.arch):
        write_model(folder / MODEL, header, tensors)
        config = {"library_name": "fedfuse", **header.model_dump()}
        write_whole(folder / CONFIG, json.dumps(config, indent=2).encode())
        return header
    transformers_folder.write(folder, header.arch, tensors, header.labels)
    at_home = header.model_copy(update={"arch": transformers_folder.without_path(header.arch)})
    write_model(folder / MODEL, at_home, safetensors.torch.load_file(folder / MODEL), for_transformers=True)
    return at_home


def _count(file: Path) -> int:
    return sum(tensor.numel() for tensor in safetensors.torch.load_file(file).values())


@contextmanager
def _appearing(folder: Path) -> Iterator[Path]:
    """A hidden sibling to write into. At the end it becomes the folder, or its files go into one that exists."""
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    fresh.mkdir()
    try:
        yield fresh
        if folder.exists():  # it may be a hub's working copy: what else is in it stays
            for file in sorted(fresh.iterdir()):
                file.replace(folder / file.name)
        else:
            fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
