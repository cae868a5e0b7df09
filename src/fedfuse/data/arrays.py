"""Named arrays in a folder: one .npy file each and a manifest. Arrays are memory-mapped, so processes share pages."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfuse.data.examples import Examples
from fedfuse.data.texts.store import Texts
from fedfuse.files import slug
from fedfuse.types import DamagedError

FORMAT = 2
CHUNK = 1 << 24  # bytes hashed at a time
MANIFEST = "manifest.json"


def write(folder: Path, arrays: Mapping[str, Tensor], facts: Mapping[str, Any], *, replace: bool = True) -> None:
    """Write `arrays` and `facts` (plain JSON) to `folder`. A reader sees the complete folder or none.

    replace: false keeps a complete folder that is there: another process wrote it meanwhile, and may be reading it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        staging = Path(scratch, "new")
        staging.mkdir()
        entries = {}
        for number, (name, array) in enumerate(arrays.items()):
            file = f"{number:02d}-{slug(name, '_')}.npy"
            values = array.contiguous().numpy()
            _save(staging / file, values)
            shape = list(values.shape)
            entries[name] = {"file": file, "dtype": str(values.dtype), "shape": shape, "sha256": _hash(values)}
        manifest = {"format": FORMAT, "facts": dict(facts), "arrays": entries}
        manifest["sha256"] = _hash_of_manifest(manifest)
        (staging / MANIFEST).write_text(json.dumps(manifest, indent=1))
        if replace and folder.exists():
            folder.rename(Path(scratch, "old"))
        try:
            os.rename(staging, folder)  # noqa: PTH104 - the path that Path.rename returns is not needed
        except OSError:
            if not (folder / MANIFEST).exists():  # otherwise another process wrote it first: keep that copy
                raise


def _save(file: Path, values: np.ndarray[Any, Any]) -> None:
    try:
        np.save(file, values, allow_pickle=False)
    except OSError as error:  # of a short write numpy says only how many bytes there were
        raise error if error.errno else OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file)) from error


def _hash(values: np.ndarray[Any, Any]) -> str:
    digest, flat = hashlib.sha256(), values.reshape(-1).view(np.uint8)
    for start in range(0, len(flat), CHUNK):
        digest.update(flat[start : start + CHUNK].tobytes())
    return digest.hexdigest()


def _hash_of_manifest(manifest: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read(folder: Path, *, verify: bool = True) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the arrays and facts in `folder`. The arrays are mapped copy-on-write: writing to one changes no file.

    verify: compare the content with the hashes of the manifest. Workers do without: their folder was just written.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if manifest["format"] != FORMAT:
            raise DamagedError(
                f"{folder} has format {manifest['format']}, this version reads {FORMAT}: create it again"
            )
        if manifest["sha256"] != _hash_of_manifest(manifest):
            raise ValueError(f"{MANIFEST} is not as it was written")
        arrays = {name: _open(folder, entry, verify) for name, entry in manifest["arrays"].items()}
        return arrays, dict(manifest["facts"])
    except DamagedError:
        raise
    except Exception as error:  # numpy parses a header as Python code, so that damage there may raise anything
        raise DamagedError(f"{folder} cannot be read ({error}): delete it and create it again") from error


def _open(folder: Path, entry: Mapping[str, Any], verify: bool) -> Tensor:
    # Use the bare file name only, so that an untrusted manifest cannot point outside its folder.
    array = np.load(folder / Path(entry["file"]).name, mmap_mode="c", allow_pickle=False)
    if str(array.dtype) != entry["dtype"] or list(array.shape) != entry["shape"]:
        raise ValueError(
            f"{entry['file']} is {array.dtype} {array.shape}, but the manifest says {entry['dtype']} {entry['shape']}"
        )
    if verify and _hash(array) != entry["sha256"]:
        raise ValueError(f"{entry['file']} is not as it was written")
    return torch.from_numpy(array)


def remove(folder: Path) -> None:
    """Delete a folder of arrays, if it exists."""
    shutil.rmtree(folder, ignore_errors=True)


def pack(prefix: str, examples: Examples) -> dict[str, Tensor]:
    """`examples` as named arrays, without `classes`: the caller stores that."""
    parts = {"y": examples.y, "mean": examples.mean, "std": examples.std}
    x = {"x": examples.x} if isinstance(examples.x, Tensor) else {f"x.{n}": t for n, t in examples.x.items()}
    if examples.vocabulary:
        parts["vocabulary"] = torch.tensor([examples.vocabulary])
    if examples.texts is not None:
        parts |= {"texts.content": examples.texts.content, "texts.ends": examples.texts.ends}
    arrays = {f"{prefix}.{name}": array for name, array in {**x, **parts}.items()}
    return arrays | {f"{prefix}.column.{name}": column for name, column in examples.columns.items()}


def unpack(prefix: str, arrays: Mapping[str, Tensor], classes: int) -> Examples:
    """The examples that `pack` named with this `prefix`."""
    start = f"{prefix}.column."
    columns = {name.removeprefix(start): a for name, a in arrays.items() if name.startswith(start)}
    y, mean, std = (arrays[f"{prefix}.{part}"] for part in ("y", "mean", "std"))
    named = f"{prefix}.x."
    inputs = {name.removeprefix(named): a for name, a in arrays.items() if name.startswith(named)}
    vocabulary, texts = arrays.get(f"{prefix}.vocabulary"), None
    if f"{prefix}.texts.content" in arrays:
        texts = Texts(arrays[f"{prefix}.texts.content"], arrays[f"{prefix}.texts.ends"])
    tokens = 0 if vocabulary is None else int(vocabulary)
    return Examples(inputs or arrays[f"{prefix}.x"], y, classes, mean, std, columns, tokens, texts)
