"""Named arrays in a folder: one .npy file each and a manifest. Arrays are memory-mapped, so processes share pages."""

from __future__ import annotations

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
from fedfuse.files import slug
from fedfuse.types import FedfuseError

FORMAT = 1
MANIFEST = "manifest.json"


class DamagedError(FedfuseError):
    """A folder of arrays is incomplete: a file is missing, truncated or of the wrong shape."""


def write(folder: Path, arrays: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write `arrays` and `facts` (plain JSON) to `folder`, replacing it. A reader sees the complete folder or none."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        staging = Path(scratch, "new")
        staging.mkdir()
        entries = {}
        for number, (name, array) in enumerate(arrays.items()):
            file = f"{number:02d}-{slug(name, '_')}.npy"
            values = array.contiguous().numpy()
            np.save(staging / file, values, allow_pickle=False)
            entries[name] = {"file": file, "dtype": str(values.dtype), "shape": list(values.shape)}
        manifest = {"format": FORMAT, "facts": dict(facts), "arrays": entries}
        (staging / MANIFEST).write_text(json.dumps(manifest, indent=1))
        if folder.exists():
            folder.rename(Path(scratch, "old"))
        try:
            os.rename(staging, folder)  # noqa: PTH104 - the path that Path.rename returns is not needed
        except OSError:
            if not (folder / MANIFEST).exists():  # otherwise another process wrote it first: keep that copy
                raise


def read(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the arrays and facts in `folder`. The arrays are mapped copy-on-write: writing to one changes no file."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if manifest["format"] != FORMAT:
            raise DamagedError(
                f"{folder} has format {manifest['format']}, this version reads {FORMAT}: create it again"
            )
        arrays = {name: _open(folder, entry) for name, entry in manifest["arrays"].items()}
        return arrays, dict(manifest["facts"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError) as error:
        raise DamagedError(f"{folder} cannot be read ({error}): delete it and create it again") from error


def _open(folder: Path, entry: Mapping[str, Any]) -> Tensor:
    # Use the bare file name only, so that an untrusted manifest cannot point outside its folder.
    array = np.load(folder / Path(entry["file"]).name, mmap_mode="c", allow_pickle=False)
    if str(array.dtype) != entry["dtype"] or list(array.shape) != entry["shape"]:
        raise ValueError(
            f"{entry['file']} is {array.dtype} {array.shape}, but the manifest says {entry['dtype']} {entry['shape']}"
        )
    return torch.from_numpy(array)


def remove(folder: Path) -> None:
    """Delete a folder of arrays, if it exists."""
    shutil.rmtree(folder, ignore_errors=True)


def pack(prefix: str, examples: Examples) -> dict[str, Tensor]:
    """`examples` as named arrays, without `classes`: the caller stores that."""
    parts = {"x": examples.x, "y": examples.y, "mean": examples.mean, "std": examples.std}
    arrays = {f"{prefix}.{name}": array for name, array in parts.items()}
    return arrays | {f"{prefix}.column.{name}": column for name, column in examples.columns.items()}


def unpack(prefix: str, arrays: Mapping[str, Tensor], classes: int) -> Examples:
    """The examples that `pack` named with this `prefix`."""
    start = f"{prefix}.column."
    columns = {name.removeprefix(start): a for name, a in arrays.items() if name.startswith(start)}
    x, y, mean, std = (arrays[f"{prefix}.{part}"] for part in ("x", "y", "mean", "std"))
    return Examples(x, y, classes, mean, std, columns)
