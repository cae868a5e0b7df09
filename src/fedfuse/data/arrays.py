"""Named arrays in a folder: one .npy file each and a manifest. Opened by memory map, so processes share pages."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfuse.data.examples import Examples
from fedfuse.types import FedfuseError

FORMAT = 1
MANIFEST = "manifest.json"


class DamagedError(FedfuseError):
    """A folder of arrays that is not whole: a file is missing, cut short or of another shape."""


def write(folder: Path, arrays: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write `arrays` and `facts` (plain JSON) to `folder`, replacing it: a reader sees all of it or none."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        staged = Path(scratch, "new")
        staged.mkdir()
        entries = {}
        for number, (name, array) in enumerate(arrays.items()):
            file = f"{number:02d}-{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}.npy"
            values = array.contiguous().numpy()
            np.save(staged / file, values, allow_pickle=False)
            entries[name] = {"file": file, "dtype": str(values.dtype), "shape": list(values.shape)}
        manifest = {"format": FORMAT, "facts": dict(facts), "arrays": entries}
        (staged / MANIFEST).write_text(json.dumps(manifest, indent=1))
        if folder.exists():
            folder.rename(Path(scratch, "old"))
        try:
            os.rename(staged, folder)  # noqa: PTH104 - Path.rename returns a path nobody wants
        except OSError:
            if not (folder / MANIFEST).exists():  # else another process was quicker: its copy is as good
                raise


def read(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The arrays and facts in `folder`. The arrays are mapped copy-on-write: writing to one changes no file."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if manifest["format"] != FORMAT:
            raise DamagedError(f"{folder} has format {manifest['format']}, this version reads {FORMAT}: make it again")
        arrays = {name: _open(folder, entry) for name, entry in manifest["arrays"].items()}
        return arrays, dict(manifest["facts"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError) as error:
        raise DamagedError(f"{folder} cannot be read ({error}): delete it and make it again") from error


def _open(folder: Path, entry: Mapping[str, Any]) -> Tensor:
    # Only a bare file name is followed: a manifest from elsewhere cannot point out of its folder.
    array = np.load(folder / Path(entry["file"]).name, mmap_mode="c", allow_pickle=False)
    if str(array.dtype) != entry["dtype"] or list(array.shape) != entry["shape"]:
        raise ValueError(f"{entry['file']} is {array.dtype} {array.shape}, not as in the manifest")
    return torch.from_numpy(array)


def remove(folder: Path) -> None:
    """Delete a folder of arrays, if it is there."""
    shutil.rmtree(folder, ignore_errors=True)


def pack(prefix: str, examples: Examples) -> dict[str, Tensor]:
    """`examples` as named arrays; `classes` is the caller's to keep."""
    parts = {"x": examples.x, "y": examples.y, "mean": examples.mean, "std": examples.std}
    packed = {f"{prefix}.{name}": array for name, array in parts.items()}
    return packed | {f"{prefix}.column.{name}": column for name, column in examples.columns.items()}


def unpack(prefix: str, arrays: Mapping[str, Tensor], classes: int) -> Examples:
    """The examples that `pack` named with `prefix`."""
    start = f"{prefix}.column."
    columns = {name.removeprefix(start): a for name, a in arrays.items() if name.startswith(start)}
    x, y, mean, std = (arrays[f"{prefix}.{part}"] for part in ("x", "y", "mean", "std"))
    return Examples(x, y, classes, mean, std, columns)
