"""A node's own data: read from a file or folder at the node, and compared with what the experiment needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tomli_w
import torch
from flwr.app import Context
from pydantic import TypeAdapter
from torch import Tensor

from fedfuse.config.experiment import Experiment, load
from fedfuse.data.federation import Federation
from fedfuse.data.sources import load_from
from fedfuse.data.sources.location import Location
from fedfuse.records.directory import read_toml
from fedfuse.types import FedfuseError

FILE = "data.toml"  # in the app: what the data of every node must be like


@dataclass(frozen=True)
class Needed:
    """The shape and type of one input, and the classes in the order of their numbers."""

    shape: Sequence[int]
    dtype: str  # uint8 or float32
    labels: Sequence[str]

    @staticmethod
    def by(federation: Federation) -> Needed:
        x = federation.train.x
        if not isinstance(x, Tensor):
            raise FedfuseError(
                "nodes with their own data send images or numbers; for texts, write the app's client_app.py yourself "
                "(docs: A node's own data), or try it with --share"
            )
        return Needed(list(federation.train.shape), str(x.dtype).removeprefix("torch."), list(federation.labels))

    def write(self, folder: Path) -> None:
        (folder / FILE).write_text(tomli_w.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def read(folder: Path) -> Needed:
        return TypeAdapter(Needed).validate_python(read_toml(folder / FILE))

    def check(self, x: Tensor, y: Tensor, name: str) -> None:
        """Raise an error unless x (N, ...) and y (N,) fit. It names the file without its folder: the server sees it."""
        if not len(y) or len(x) != len(y):
            raise FedfuseError(f"{name} has {len(x)} inputs and {len(y)} labels: give as many of each, at least one")
        dtype = str(x.dtype).removeprefix("torch.")
        if tuple(x.shape[1:]) != tuple(self.shape) or dtype != self.dtype:
            raise FedfuseError(
                f"{name} has inputs {dtype} {tuple(x.shape[1:])}, but the experiment needs {self.dtype} "
                f"{tuple(self.shape)}: convert them"
            )
        if x.is_floating_point() and not bool(torch.isfinite(x).all()):
            raise FedfuseError(f"{name} has inputs that are not finite: fill in or leave out missing values")
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= len(self.labels):
            raise FedfuseError(
                f"{name} has labels from {low} to {high}, but the experiment has {len(self.labels)} classes, 0 to "
                f"{len(self.labels) - 1} ({', '.join(self.labels[:5])}{', ...' if len(self.labels) > 5 else ''})"
            )


def own_data(app: Path) -> Callable[[Context], tuple[Tensor, Tensor]]:
    """Return a function for `client_app(data=...)`: it reads what `data` in the node config names."""

    def own(context: Context) -> tuple[Tensor, Tensor]:
        if "data" not in context.node_config:
            raise FedfuseError("""its node has no data: name it in the node config, as in 'data="/path/to/data.npz"'""")
        return read_data(Path(str(context.node_config["data"])), load(app / "experiment.toml"), Needed.read(app))

    return own


def read_data(path: Path, experiment: Experiment, needed: Needed) -> tuple[Tensor, Tensor]:
    """Read x (N, ...) and y (N,) and check them: an .npz file with arrays x and y, or whatever `data.source` can name.

    A folder with a single file stands for that file.
    """
    path = path.expanduser()
    within = sorted(path.iterdir()) if path.is_dir() else []
    if not path.exists() or (path.is_dir() and not within):
        raise FedfuseError(
            f"there is nothing in {path.name} at the node: put a file train.npz with arrays x and y there, or data as "
            "data.source of the experiment takes it"
        )
    if len(within) == 1 and within[0].is_file():
        (path,) = within
    x, y = _arrays(path) if path.suffix == ".npz" else _source(path, experiment, needed)
    needed.check(x, y, path.name)
    return x, y


def _arrays(path: Path) -> tuple[Tensor, Tensor]:
    try:
        with np.load(path, allow_pickle=False) as file:
            x, y = file["x"], file["y"]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise FedfuseError(
            f"{path.name}: cannot read arrays x and y: {type(error).__name__}: write them again"
        ) from error
    if y.dtype.kind not in "iu" or y.ndim != 1 or x.dtype.kind not in "fiu":
        raise FedfuseError(
            f"{path.name} has x {x.dtype} and y {y.dtype} {y.shape}: give numbers, and whole numbers (N,) as labels"
        )
    return torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))


def _source(path: Path, experiment: Experiment, needed: Needed) -> tuple[Tensor, Tensor]:
    """Read the training data of a source of the experiment's kind. Classes are matched by name."""
    source = load_from(Location.at(), str(path), experiment.data.settings)
    if not isinstance(source.train.x, Tensor):
        raise FedfuseError(f"{path.name} is text: write the app's client_app.py yourself")
    unknown = [label for label in source.labels if label not in needed.labels]
    if unknown:
        raise FedfuseError(
            f"{path.name} has the classes {', '.join(unknown[:3])}, which the experiment does not know: rename them to "
            f"those of the experiment ({', '.join(needed.labels[:5])}{', ...' if len(needed.labels) > 5 else ''})"
        )
    numbers = torch.tensor([needed.labels.index(label) for label in source.labels])
    return source.train.x, numbers[source.train.y]
