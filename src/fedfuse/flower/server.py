"""The server's side: a Flower ServerApp that drives Flower's Grid with the same round loop as a simulation."""

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
from fedfuse.runs.run import EngineMaker, refuse_local_objects, run
from fedfuse.terminal.progress import Lines
from fedfuse.types import FedfuseError


@dataclass(frozen=True)
class Deployment:
    """Where a federation's run lies and how long it waits. The keys of the app's run config are the same."""

    out: str | None = None  # run directory; by default under ./runs of the server's process
    resume: bool = False  # go on after the last finished round
    timeout: float = 600.0  # seconds that nodes have for a round
    wait: float = 120.0  # seconds that the server waits for its nodes at the start
    start: int = 0  # clients that must have a node by then; 0 is run.quorum

    def overridden(self, config: UserConfig) -> Deployment:
        """With what the run config says; an empty text says nothing."""
        keys = [field.name for field in fields(self)]
        given: dict[str, Any] = {key: config[key] for key in keys if key in config}
        given = {key: value for key, value in given.items() if value != ""}
        made = replace(self, **given)
        if not (made.timeout > 0 and made.wait >= 0):
            raise FedfuseError(f"timeout = {made.timeout}, wait = {made.wait}: give seconds, above 0")
        return made


def server_app(experiment: Experiment | str | Path, deployment: Deployment | None = None) -> ServerApp:
    """A ServerApp for `experiment`: a value, a file or a built-in name, the same as the nodes'."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: ServerContext) -> None:
        chosen = (deployment or Deployment()).overridden(context.run_config)
        loaded = experiment if isinstance(experiment, Experiment) else load(experiment)
        serve(loaded, grid, chosen)

    return app


def serve(experiment: Experiment, grid: Grid, deployment: Deployment) -> None:
    """Run the experiment over this grid's nodes."""
    display = Lines(Console(width=110))
    engines = over(grid, deployment)
    run(experiment, deployment.out, resume=deployment.resume, display=display, engines=engines)


def over(grid: Grid, deployment: Deployment) -> EngineMaker:
    """Engines over this grid's nodes, once they are there."""

    def engines(experiment: Experiment, federation: Federation, path: Path) -> tuple[Engine, Tensor | None]:
        refuse_local_objects(experiment, "nodes are other processes, which")
        roster = Roster.open(path, len(federation))
        roster.wait(grid, max(experiment.run.quorum, deployment.start), deployment.wait, HELLO)
        return OverGrid(grid, roster, deployment.timeout, path / SCRATCH / "flower"), roster.capability()

    return engines
