"""Run an experiment in Flower's simulation, which distributes the clients' work over Ray: one machine or a cluster.

The round loop stays in this thread, so Ctrl-C and errors behave as in every other engine. Flower's simulation runs in
another thread: its ServerApp only hands over the Grid, and ends when the run ends.
"""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

import torch
from flwr.app import Context as NodeContext
from flwr.app import Message, MessageType
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from torch import Tensor

from fedfuse.compute import devices
from fedfuse.compute.threads import cores
from fedfuse.config.experiment import Experiment
from fedfuse.data.federation import Federation
from fedfuse.engines import Engine
from fedfuse.flower import wire
from fedfuse.flower.client import Node, serving
from fedfuse.flower.server import Deployment, over
from fedfuse.records.directory import SCRATCH
from fedfuse.records.observer import Observer
from fedfuse.runs.display import Display
from fedfuse.runs.engine import refuse_local_objects
from fedfuse.runs.progress import from_python
from fedfuse.runs.run import Run, run
from fedfuse.select import cohort_size
from fedfuse.types import FedfuseError

START = 300.0  # seconds for a first client to answer: Ray starts, and a process imports PyTorch
PATIENCE = 30 * 86400.0  # seconds for a round: as on one machine, no client is cut off; one that dies is reported
GRACE = 1.0  # seconds between SIGTERM and the forced exit of a Ray process
LOOK = 0.2  # seconds between two polls
LOOPBACK = "127.0.0.1"
CLUSTER = "RAY_ADDRESS"
TOO_SLOW = "timed out during startup"  # part of Ray's error message

# No usage statistics, no advice about GPUs, no log line for each process that ends.
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
}
# Ray replaces 127.0.0.1 by the machine's external address unless clusters are disabled. The variable is named after the
# systems where that is the default, but applies to all.
ALONE = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_prestart_worker_first_driver": "0",  # these processes would idle: Flower starts its own for clients
}


def simulate(
    experiment: Experiment,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    progress: bool = True,
    display: Display | None = None,
    observers: Sequence[Observer] = (),
) -> Run:
    """Run the experiment as `fedfuse.run` does, with each client a node of Flower's simulation.

    Ray is started on this machine, unless RAY_ADDRESS names a cluster.
    """
    refuse_local_objects(experiment, "the simulation's nodes are other processes, which")
    if find_spec("ray") is None:
        raise FedfuseError("Flower's simulation needs Ray: pip install 'fedfuse[flower-simulation]'")
    with ExitStack() as simulation, from_python(display, progress) as shown:

        def engines(experiment: Experiment, federation: Federation, path: Path) -> tuple[Engine, Tensor | None]:
            grid = simulation.enter_context(_simulation_grid(experiment, federation, path.resolve(), shown))
            return over(grid, Deployment(timeout=PATIENCE))(experiment, federation, path)

        return run(experiment, out, resume=resume, display=shown, observers=observers, engines=engines)


@contextmanager
def _simulation_grid(experiment: Experiment, federation: Federation, path: Path, display: Display) -> Iterator[Grid]:
    """Start a simulation with a node for each client, and yield its Grid."""
    data, memory = path / SCRATCH / "federation", path / "flower" / "memory"
    federation.save(data)
    memory.mkdir(parents=True, exist_ok=True)
    app = _clients(experiment.toml(), data, memory)
    display.preparing("starting Ray", 0.0)
    with _ray(experiment, len(federation)) as config, _running_grid(app, len(federation), config) as grid:
        display.preparing("starting Ray", 1.0)
        yield grid


@contextmanager
def _running_grid(app: ClientApp, nodes: int, config: dict[str, Any]) -> Iterator[Grid]:
    """Start the simulation. Ray's start timeout is fixed at 30 s: if it expires, try once more, with warm caches."""
    simulation = _Simulation(app, nodes, config)
    try:
        grid = simulation.start()
    except FedfuseError as error:
        if TOO_SLOW not in str(error):
            raise
        simulation = _Simulation(app, nodes, config)
        grid = simulation.start()
    try:
        yield grid
    finally:
        simulation.stop()


class _Simulation:
    """Flower's simulation in a thread of its own."""

    def __init__(self, app: ClientApp, nodes: int, config: dict[str, Any]) -> None:
        self._stop, self._grids = Event(), SimpleQueue[Grid]()
        self._failure: BaseException | None = None
        server = ServerApp()

        @server.main()
        def main(grid: Grid, context: NodeContext) -> None:
            self._grids.put(grid)
            self._stop.wait()

        def run() -> None:
            try:
                run_simulation(server, app, nodes, backend_config=config)
            except BaseException as error:
                self._failure = error

        self._thread = Thread(target=run, name="fedfuse-simulation", daemon=True)

    def start(self) -> Grid:
        self._thread.start()
        try:
            return self._wait_for_client()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the simulation. Working clients exit with the run's scratch folder, so this does not wait for them."""
        self._stop.set()
        self._thread.join()

    def _wait_for_client(self) -> Grid:
        """Return the Grid once a first client answers: nodes are listed before anything runs."""
        deadline = monotonic() + START
        while self._grids.empty():
            self._wait(deadline)
        grid = self._grids.get()
        while not (nodes := list(grid.get_node_ids())):
            self._wait(deadline)
        hello = Message(wire.content({"protocol": wire.PROTOCOL}), nodes[0], MessageType.QUERY, ttl=START)
        ids = list(grid.push_messages([hello]))
        while not (answers := list(grid.pull_messages(ids))):
            self._wait(deadline)
        if answers[0].has_error():
            raise FedfuseError(f"the first client failed to start: {wire.excerpt(answers[0].error.reason)}")
        return grid

    def _wait(self, deadline: float) -> None:
        if not self._thread.is_alive():
            raise FedfuseError(f"Flower's simulation did not start: {_root(self._failure)}") from self._failure
        if monotonic() > deadline:
            raise FedfuseError(f"no client answered within {START:g} s of the simulation's start")
        sleep(LOOK)


def _root(error: BaseException | None) -> str:
    """Return the first cause: Flower wraps it twice, in errors without details."""
    while error is not None and error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}"


def _clients(experiment: str, data: Path, memory: Path) -> ClientApp:
    """Return the ClientApp of all nodes. Flower sends it with each message, so it holds paths, not data."""
    app = ClientApp()

    def forward(message: Message, context: NodeContext) -> Message:
        node = context.node_config["partition-id"]
        context.node_config["memory-dir"] = str(memory / f"node-{node}")
        return _client(experiment, str(data))(message, context)

    app.query()(forward)
    app.train()(forward)
    return app


@cache
def _client(experiment: str, data: str) -> ClientApp:
    """Return the ClientApp that does the work, one per Ray process, over shared data."""
    folder = Path(data)
    if not folder.is_dir():
        raise FedfuseError(
            f"{folder} does not exist on this machine: give an --out that all machines of the cluster share"
        )
    Thread(target=_end_with, args=(folder,), daemon=True).start()
    return serving(Node(Experiment(**tomllib.loads(experiment)), None, {"all": Federation.open(folder)}))


def _end_with(folder: Path) -> None:
    """End this process when the run ends and removes its scratch folder, even during a client's work."""
    while folder.is_dir():
        sleep(LOOK)
    os.kill(os.getpid(), signal.SIGTERM)  # tells Ray that the exit is intended
    sleep(GRACE)
    os._exit(0)


@contextmanager
def _ray(experiment: Experiment, clients: int) -> Iterator[dict[str, Any]]:
    """Yield Flower's backend config. Inside, Flower and Ray are quiet and, without a cluster, stay on loopback."""
    settings, cluster = experiment.run, os.environ.get(CLUSTER)
    quiet = {"logging_level": "CRITICAL", "log_to_driver": False, "include_dashboard": False}
    at_once = min(settings.workers or cores(), cohort_size(clients, settings.fraction))
    resources = {"num_cpus": settings.threads, "num_gpus": _gpus_per_client(settings.device, at_once)}
    with _silence(), _environment(QUIET if cluster else QUIET | ALONE):
        if cluster:
            yield {"init_args": {**quiet, "address": cluster}, "client_resources": resources}
            return
        # Ray puts its sockets there, and the system limits the length of their paths: other folders may be too deep.
        with tempfile.TemporaryDirectory(prefix="fedfuse-", dir="/tmp", ignore_cleanup_errors=True) as folder:
            here = {"address": "local", "_node_ip_address": LOOPBACK, "_temp_dir": folder}
            limit = {"num_cpus": at_once * settings.threads}
            yield {"init_args": {**quiet, **here, **limit}, "client_resources": resources}


def _gpus_per_client(device: str, at_once: int) -> float:
    """Return the share of this machine's GPUs that Ray gives to each of the clients that run at the same time."""
    place = devices.resolve(device)
    if place.type != "cuda":
        return 0.0
    if place.index is not None:
        raise FedfuseError(
            f'run.device = "{device}": Ray gives each client a GPU of its own choice: set run.device = "cuda", and '
            f"CUDA_VISIBLE_DEVICES={place.index} for this GPU only"
        )
    share = torch.accelerator.device_count() / at_once
    return share if share <= 1 else float(int(share))  # Ray takes no fraction above 1


@contextmanager
def _environment(defaults: dict[str, str]) -> Iterator[None]:
    """Set these variables if they are unset, and restore them. Restore PYTHONPATH too, which Flower changes."""
    before = {key: os.environ.get(key) for key in (*defaults, "PYTHONPATH")}
    for key, value in defaults.items():
        os.environ.setdefault(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = old


@contextmanager
def _silence() -> Iterator[None]:
    """Silence Flower and Ray: failures are already in the run's records and errors, by client and reason."""
    loggers = [logging.getLogger(name) for name in ("flwr", "ray")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
