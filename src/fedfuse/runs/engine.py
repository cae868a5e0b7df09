"""Which engine runs the clients: worker processes where others can import the experiment, else threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from fedfuse.compute import devices
from fedfuse.compute.threads import cores
from fedfuse.config.experiment import Experiment
from fedfuse.data.federation import Federation
from fedfuse.engines import Engine, InProcess, InThreads, Workers
from fedfuse.records.directory import EXPERIMENT, SCRATCH
from fedfuse.select import cohort_size
from fedfuse.types import FedfuseError

# Returns an engine for this experiment and directory and, if it knows them, the clients' capabilities (K,).
EngineMaker = Callable[[Experiment, Federation, Path], tuple[Engine, Tensor | None]]


def local_engine(experiment: Experiment, federation: Federation, path: Path) -> tuple[Engine, Tensor | None]:
    """Return an engine of worker processes, or of threads if other processes cannot import the experiment's objects."""
    clients = cohort_size(len(federation.parts), experiment.run.fraction)
    fitting = devices.workers_that_fit(devices.resolve(experiment.run.device))
    count = min(experiment.run.workers or min(cores(), fitting or cores()), clients)
    if count <= 1:
        return InProcess(), None
    if experiment.local_objects:
        if experiment.run.workers:
            refuse_local_objects(experiment, f"run.workers = {experiment.run.workers}: worker processes")
        return InThreads(count), None
    # In the scratch folder, so that an incomplete copy is removed after a kill.
    folder = (path / SCRATCH / "federation").resolve()
    federation.save(folder)
    return Workers(count, path / EXPERIMENT, folder), None


def refuse_local_objects(experiment: Experiment, who: str) -> None:
    """Raise an error if the experiment has Python objects that `who` cannot import."""
    if objects := experiment.local_objects:
        raise FedfuseError(
            f"{who} cannot import {objects[0]}, a Python object of this process: define its function at the top level "
            "of a module, and import it from there"
        )
