"""MLflow: the store of MLFLOW_TRACKING_URI, else `mlflow.db` beside the run directory."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from filelock import FileLock

from fedfuse.tracking.scalars import Parameters
from fedfuse.tracking.tracker import defaults

# MLflow reads these when it is imported: send no telemetry, and write nothing between progress bars.
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_LOGGING_LEVEL": "WARNING"}


class MLflow:
    """Log to SQLite, since MLflow 3 refuses its old store of plain files.

    All runs of a folder share one database, since MLflow shows one.
    """

    buffers = False

    def open(self, path: Path, known: str | None, parameters: Parameters) -> str:
        with defaults(QUIET):
            self._mlflow = import_module("mlflow")
        folder = path.resolve().parent
        default = f"sqlite:///{folder / 'mlflow.db'}"
        with FileLock(folder / ".mlflow.lock", timeout=120):  # if two processes create the tables at once, one fails
            self._client = self._mlflow.MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or default)
            self._id = known if known and self._has(known) else self._new(path.name, parameters)
        return self._id

    def _has(self, run: str) -> bool:
        try:
            self._client.update_run(run, status="RUNNING")
        except self._mlflow.MlflowException:  # deleted, or in another store
            return False
        return True

    def _new(self, name: str, parameters: Parameters) -> str:
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME") or str(parameters["name"])
        experiment = self._client.get_experiment_by_name(title)
        group = experiment.experiment_id if experiment else self._client.create_experiment(title)
        run: str = self._client.create_run(group, run_name=name).info.run_id
        params = [self._mlflow.entities.Param(key, str(value)) for key, value in parameters.items()]
        for start in range(0, len(params), 100):  # MLflow accepts no more at once
            self._client.log_batch(run, params=params[start : start + 100])
        return run

    def log(self, round: int, scalars: Mapping[str, float]) -> None:
        now, metric = int(1000 * time.time()), self._mlflow.entities.Metric
        metrics = [metric(name, value, now, round) for name, value in scalars.items()]
        for start in range(0, len(metrics), 1000):
            self._client.log_batch(self._id, metrics=metrics[start : start + 1000])

    def close(self, finished: bool) -> None:
        self._client.set_terminated(self._id, "FINISHED" if finished else "KILLED")
