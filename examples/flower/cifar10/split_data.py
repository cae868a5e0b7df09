"""Split CIFAR-10 into a file for each node, by the partition of experiment.toml, to try the app without your own data.

`python split_data.py FOLDER` writes FOLDER/node-0.npz, node-1.npz, ... They contain neither the test images nor the
pool, so the run is the one that `fedfuse run experiment.toml` simulates, if nodes declare no capability: a simulation
assigns the architectures by the seed.
"""

import sys
from pathlib import Path

import numpy as np

import fedfuse
from fedfuse.runs.setup import load_federation
from fedfuse.types import FedfuseError

APP = Path(__file__).resolve().parent


def split(experiment: fedfuse.Experiment, folder: Path) -> list[Path]:
    """Write each client's share of the experiment's data into `folder`."""
    if APP in (folder.resolve(), *folder.resolve().parents):
        raise FedfuseError(f"{folder} is inside the app, which goes to every node: choose another folder")
    federation = load_federation(experiment)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for k in range(len(federation)):
        share = federation.train.subset(federation.client(k))
        files.append(folder / f"node-{k}.npz")
        np.savez(files[-1], x=share.x.numpy(), y=share.y.numpy())
    return files


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python split_data.py FOLDER")
    try:
        for file in split(fedfuse.load(APP / "experiment.toml"), Path(sys.argv[1])):
            print(file)
    except FedfuseError as error:
        sys.exit(str(error))
