"""The server side: a Flower ServerApp that runs the same round loop as a simulation, over Flower's Grid."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from flwr.app import Context as ServerContext
from flwr.app import UserConfig
from flwr.serverapp import Grid, ServerApp
from rich.console import Console
from torch import Tensor

from fedfuse.config.experiment import Experiment, load
from fedfuse.data.federation import Federation
from fedfuse.engines import Engine
from fedfuse.flower.engine import HELLO, OverGrid
from fedfuse.flower.roster import Roster
from fedfuse.records.directory import SCRATCH
from fedfuse.runs.engine import EngineMaker, refuse_local_objects
from fedfuse.runs.progress import Lines
from fedfuse.runs.run import run
from fedfuse.select import cohort_size
from fedfuse.types import FedfuseError

TYPES = {"out": (str,), "resume": (bool,), "timeout": (float, int), "wait": (float, int), "start": (int,)}
EXAMPLES = {"out": "'runs/mine'", "resume": "true", "timeout": "600", "wait": "120", "start": "2"}


@dataclass(frozen=True)
class Deployment:
    """Where a federation's run is stored and how long it waits. The app's run config has the same keys."""

    out: str | None = None  # run directory; by default under ./runs of the server's process
    resume: bool = False  # continue after the last finished round
    timeout: float = 600.0  # seconds for nodes to answer in a round
    wait: float = 120.0  # seconds to wait for nodes at the start
    start: int = 0  # clients that must have a node by then, at least run.quorum

    def overridden(self, config: UserConfig) -> Deployment:
        """Return a copy with the values of the run config; empty texts are ignored."""
        keys = [field.name for field in fields(self)]
        values: dict[str, Any] = {key: config[key] for key in keys if key in config}
        values = {key: value for key, value in values.items() if value != ""}
        for key, value in values.items():
            if type(value) not in TYPES[key]:
                expected = " or ".join(kind.__name__ for kind in TYPES[key])
                raise FedfuseError(f"{key} = {value!r} in the run config: give {expected}, as in {key}={EXAMPLES[key]}")
        deployment = replace(self, **values)
        if not (deployment.timeout > 0 and deployment.wait >= 0):
            raise FedfuseError(
                f"timeout = {deployment.timeout}, wait = {deployment.wait}: give seconds, a timeout above 0 and a wait "
                "of at least 0"
            )
        return deployment


def server_app(experiment: Experiment | str | Path, deployment: Deployment | None = None) -> ServerApp:
    """Return a ServerApp for `experiment`: a value, a file or a built-in name, the same as the nodes'."""
    if isinstance(experiment, Experiment):
        refuse_discrepancy(experiment)
        refuse_local_objects(experiment, "nodes are other processes, which")
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: ServerContext) -> None:
        settings = (deployment or Deployment()).overridden(context.run_config)
        value = experiment if isinstance(experiment, Experiment) else load(experiment)
        serve(value, grid, settings)

    return app


def serve(experiment: Experiment, grid: Grid, deployment: Deployment) -> None:
    """Run the experiment over this grid's nodes."""
    refuse_discrepancy(experiment)
    display = Lines(Console(width=110))
    if (notice := cohort_notice(experiment)) is not None:
        display.warn(notice)
    engines = over(grid, deployment)
    run(experiment, deployment.out, resume=deployment.resume, display=display, engines=engines)


def cohort_notice(experiment: Experiment) -> str | None:
    """Return a line that says how many nodes a round asks, if not all of them."""
    clients, fraction = experiment.partition.clients, experiment.run.fraction
    if (asked := cohort_size(clients, fraction)) == clients:
        return None
    return f"each round asks {asked} of {clients} nodes (run.fraction = {fraction:g}): set it to 1 to ask all"


def refuse_discrepancy(experiment: Experiment) -> None:
    """Refuse to compare data that the server does not see."""
    if experiment.run.discrepancy:
        raise FedfuseError(
            "run.discrepancy = True compares the clients' data, which the server of a federation never sees: leave it "
            "out, or simulate with fedfuse run"
        )


def over(grid: Grid, deployment: Deployment) -> EngineMaker:
    """Return a function that waits for this grid's nodes and makes an engine over them."""

    def engines(experiment: Experiment, federation: Federation, path: Path) -> tuple[Engine, Tensor | None]:
        refuse_local_objects(experiment, "nodes are other processes, which")
        settings, algorithm = experiment.run, experiment.algorithm.build()
        proportional = (settings.selection or algorithm.selection) == "proportional"
        roster = Roster.open(path, len(federation), count=proportional)
        roster.wait(grid, max(settings.quorum, deployment.start), deployment.wait, HELLO)
        scratch, wait = path / SCRATCH / "flower", deployment.wait
        engine = OverGrid(grid, roster, deployment.timeout, scratch, least=settings.quorum, wait=wait)
        return engine, roster.capability()

    return engines
