"""The app of a node with its own data: `--node-config 'partition-id=0 capability=1 data="/path/to/node-0.npz"'`.

`capability` is any number. If every node gives one, the least capable node trains the architecture that the experiment
names first, the most capable the last; otherwise the seed assigns architectures.
"""

from pathlib import Path

import numpy as np
import torch
from flwr.app import Context
from torch import Tensor

from fedfuse.flower import client_app
from fedfuse.types import FedfuseError

SHAPE, CLASSES = (3, 32, 32), 10  # as in the server's data


def own(context: Context) -> tuple[Tensor, Tensor]:
    """Return the node's images x (N, 3, 32, 32) uint8 and labels y (N,) int64. They do not leave the node."""
    if "data" not in context.node_config:
        raise FedfuseError("""its node has no data: start it with --node-config 'data="/path/to/file.npz"'""")
    path = Path(str(context.node_config["data"])).expanduser()
    try:
        with np.load(path, allow_pickle=False) as file:
            x, y = file["x"], file["y"]
    except (OSError, ValueError, KeyError, EOFError) as error:
        # The server sees this message, so it names the file but not its folder.
        raise FedfuseError(f"its node cannot read x and y from {path.name}: {type(error).__name__}") from error
    if x.dtype != np.uint8 or x.shape != (len(y), *SHAPE) or not len(y):
        raise FedfuseError(f"{path.name} has images {x.dtype} {x.shape}, needed are uint8 ({y.size}, 3, 32, 32)")
    if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= CLASSES:
        raise FedfuseError(f"{path.name} has labels that are not whole numbers from 0 to {CLASSES - 1}")
    return torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))


app = client_app(Path(__file__).parent / "experiment.toml", data=own)
