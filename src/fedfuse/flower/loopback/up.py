"""Start a federation for one experiment and run it there: `fedfuse flower up`."""

from __future__ import annotations

from pathlib import Path
from time import sleep

from fedfuse.config.experiment import Experiment
from fedfuse.files import locked
from fedfuse.flower.app import write_app
from fedfuse.flower.loopback.federation import CONNECTION, LINK, Loopback, loopback
from fedfuse.flower.server import Deployment, cohort_notice, refuse_discrepancy
from fedfuse.records import events, record
from fedfuse.records.directory import EVENTS, EXPERIMENT, ROUNDS
from fedfuse.records.record import RoundRecord
from fedfuse.runs.display import Display
from fedfuse.runs.setup import check
from fedfuse.types import FedfuseError

FOLDER = "flower"  # in the run directory: credentials, app, logs, node memories
RUN = "run"
PAUSE = 0.5  # seconds between two reads of the records


def up(experiment: Experiment, path: Path, deployment: Deployment, display: Display) -> list[RoundRecord]:
    """Start a federation with a node for each client, run the experiment in `path`, and stop the federation."""
    if (path / EXPERIMENT).exists() and not deployment.resume:
        raise FedfuseError(f"{path} already holds a run: continue with --resume, or choose another --out")
    refuse_discrepancy(experiment)
    setup = check(experiment)
    experiment = setup.experiment  # with what was fitted to the data: nodes read it from a file
    for note in setup.notes:
        display.warn(note)
    folder = (path / FOLDER).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with (
        locked(folder, "already has a running federation"),
        loopback(folder, experiment.partition.clients, display) as federation,
    ):
        return submit(experiment, path, federation, deployment, display)


def submit(
    experiment: Experiment, path: Path, federation: Loopback, deployment: Deployment, display: Display
) -> list[RoundRecord]:
    """Run the experiment on this federation, and return its records."""
    app = federation.folder / "app"
    write_app(app, experiment, deployment)
    federation.processes.start(RUN, ["flwr", "run", str(app), CONNECTION, "--stream"])
    try:
        return _follow(experiment, path, federation, display)
    finally:
        federation.processes.stop(RUN)


def _follow(experiment: Experiment, path: Path, federation: Loopback, display: Display) -> list[RoundRecord]:
    """Show each round as it is recorded, until the run ends. Warn of nodes that die: only their updates are lost."""
    processes = federation.processes
    history = record.read(path / ROUNDS)
    display.begin(f"{experiment.name} · {experiment.algorithm.name}", experiment.run.rounds, history)
    if (notice := cohort_notice(experiment)) is not None:
        display.warn(notice)
    nodes = {f"node-{number}" for number in range(federation.nodes)}
    ended = False
    while not ended:
        ended = processes.ended(RUN) is not None
        for outcome in _new(path, history):
            history.append(outcome)
            display.round_ends(outcome)
        processes.must_run(LINK)
        for name in [name for name in nodes if processes.ended(name) is not None]:
            nodes.remove(name)
            display.warn(f"{name} has ended; its log: {processes.log(name)}")
        sleep(0.0 if ended else PAUSE)
    if not any(event.kind == "finished" for event in events.read(path / EVENTS)):
        raise FedfuseError(f"the run did not finish; continue with --resume. End of its log:\n{processes.tail(RUN)}")
    display.end(path, history)
    return history


def _new(path: Path, history: list[RoundRecord]) -> list[RoundRecord]:
    last = history[-1].round if history else 0
    return [outcome for outcome in record.read(path / ROUNDS) if outcome.round > last]
