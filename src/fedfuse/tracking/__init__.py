"""Trackers: log a run to TensorBoard, MLflow or Weights & Biases.

The records on disk are the source of truth. Each record is logged to the trackers. If a tracker fails, it is left out
with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec

from fedfuse.records.observer import Guarded, Observer
from fedfuse.tracking.to_mlflow import MLflow
from fedfuse.tracking.to_tensorboard import TensorBoard
from fedfuse.tracking.to_wandb import WeightsAndBiases
from fedfuse.tracking.tracker import Tracker, TrackerObserver

# Each name is also that of its library and of the extra that installs it. It is imported only when a run begins.
TRACKERS: Mapping[str, Callable[[], Tracker]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WeightsAndBiases,
}


def is_installed(name: str) -> bool:
    """Return whether the library of this tracker is there. Its own `wandb/` folder of logs is not a library."""
    spec = find_spec(name)
    return spec is not None and spec.origin is not None


def trackers(names: Iterable[str], warn: Callable[[str], None]) -> list[Observer]:
    """An observer for each name. Their errors do not end a run."""
    return [Guarded(name, TrackerObserver(name, TRACKERS[name]()), warn) for name in dict.fromkeys(names)]


__all__ = ["TRACKERS", "Tracker", "is_installed", "trackers"]
