"""Small experiments, and one of them on a Grid in this process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import safetensors.torch

import fedfuse
from fedfuse.algorithm import Algorithm
from fedfuse.context import Context
from fedfuse.flower import client_app
from fedfuse.flower.engine import OverGrid
from fedfuse.flower.roster import Roster
from fedfuse.runs.setup import load_federation, set_up
from fedfuse.types import ServerState
from tests.doubles import brief_settings
from tests.flower.grid import LocalGrid

CLIENTS = 3
NODES: dict[int, dict[str, int | float | str]] = {
    50: {"partition-id": 2},
    30: {"partition-id": 0},
    40: {"partition-id": 1},
}
NODE_OF = {0: 30, 1: 40, 2: 50}

# Images like CIFAR's, made here; little work of each kind. All else of the app stays as its file has it.
LIKE_CIFAR = {
    "data.source": "synthetic",
    "data.examples": 240,
    "data.shape": [3, 32, 32],
    "data.classes": 10,
    "data.pool.size": 32,
    "local.steps": 2,
    "local.batch_size": 8,
    "algorithm.steps": 2,
    "algorithm.batch_size": 8,
    "run.rounds": 2,
    "run.workers": 1,
}


def experiment(name: str = "fedavg", **settings: object) -> fedfuse.Experiment:
    made = fedfuse.Experiment(
        data={
            "source": "synthetic",
            "examples": 240,
            "classes": 3,
            "shape": [4],
            "pool": {"kind": "split", "size": 64},
        },
        partition={"scheme": "iid", "clients": CLIENTS},
        models={"clients": {"mlp:8": 1, "mlp:6:bn": 1} if name == "fed-et" else "mlp:6:bn", "server": "mlp:12"},
        local={"epochs": 2, "batch_size": 8},
        algorithm={"name": name, **brief_settings(name)},
        run={"rounds": 3, "workers": 1},
    )
    return made.with_settings(settings)


def bits_of(run: Path) -> dict[str, dict[str, bytes]]:
    """The tensors of each model of a run directory, as bytes."""
    files = sorted((run / "models").glob("*.safetensors"))
    assert files, f"{run} has no models"
    return {
        file.name: {name: t.numpy().tobytes() for name, t in sorted(safetensors.torch.load_file(file).items())}
        for file in files
    }


@dataclass
class Deployed:
    """An experiment's first round, over a grid."""

    grid: LocalGrid
    engine: OverGrid
    roster: Roster
    algorithm: Algorithm
    ctx: Context
    server: ServerState


def deployed(folder: Path, made: fedfuse.Experiment, timeout: float = 60.0) -> Deployed:
    grid = LocalGrid(client_app(made), NODES)
    roster = Roster.open(folder, CLIENTS)
    roster.wait(grid, 1, 10, 10)
    ctx = set_up(made, load_federation(made)).ctx.at(1)
    engine = OverGrid(grid, roster, timeout, folder / "scratch")
    return Deployed(grid, engine, roster, made.algorithm.build(), ctx, ServerState(0, ctx.initial()))
