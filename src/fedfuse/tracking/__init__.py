"""Trackers: a run's curves in TensorBoard, MLflow or Weights & Biases.

The records on disk stay the source of truth. Each is logged to the tracker; one that fails is left out with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from fedfuse.records.observer import Guarded, Observer
from fedfuse.tracking.to_mlflow import MLflow
from fedfuse.tracking.to_tensorboard import TensorBoard
from fedfuse.tracking.to_wandb import WeightsAndBiases
from fedfuse.tracking.tracker import Tracker, TrackerObserver

# Each name is also the extra that installs its library, which is imported when a run begins and not before.
TRACKERS: Mapping[str, Callable[[], Tracker]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WeightsAndBiases,
}


def trackers(names: Iterable[str], warn: Callable[[str], None]) -> list[Observer]:
    """An observer for each name, none of which can end a run."""
    return [Guarded(name, TrackerObserver(name, TRACKERS[name]()), warn) for name in dict.fromkeys(names)]


__all__ = ["TRACKERS", "Tracker", "trackers"]
