"""Weights & Biases: offline, in `<run>/wandb`, unless the user sets WANDB_MODE."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from fedfuse.tracking.scalars import Parameters
from fedfuse.tracking.tracker import defaults

# Write nothing between progress bars, and collect nothing about the machine, its code or its console.
QUIET = {
    "silent": True,
    "console": "off",
    "disable_git": True,
    "disable_code": True,
    "x_disable_stats": True,
    "x_disable_machine_info": True,
}


class WeightsAndBiases:
    """`wandb sync` uploads an offline run."""

    buffers = True

    def open(self, path: Path, known: str | None, parameters: Parameters) -> str:
        with defaults({"WANDB_ERROR_REPORTING": "false"}):  # read when the library's own process starts
            wandb = import_module("wandb")
            self._run = wandb.init(
                mode=os.environ.get("WANDB_MODE", "offline"),
                dir=path,
                id=known,
                resume="allow",
                project=os.environ.get("WANDB_PROJECT", parameters["name"]),
                name=os.environ.get("WANDB_NAME", path.name),
                config=dict(parameters),
                reinit="create_new",  # do not touch a run that the caller has open
                settings=wandb.Settings(**_not_set_by_the_user()),
            )
        return str(self._run.id)

    def log(self, round: int, scalars: Mapping[str, float]) -> None:
        self._run.log(dict(scalars), step=round, commit=True)

    def close(self, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)


def _not_set_by_the_user() -> Mapping[str, object]:
    """The settings of QUIET whose environment variable is not set.

    `silent` is WANDB_SILENT, `x_disable_stats` is WANDB__DISABLE_STATS.
    """
    return {key: value for key, value in QUIET.items() if f"WANDB_{key.removeprefix('x').upper()}" not in os.environ}
