"""What a federation is doing: nodes, rounds, refusals. Read from the run directory and, if possible, the SuperLink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedfuse.config.experiment import load
from fedfuse.flower.machines.control import Control
from fedfuse.flower.machines.machine import Place
from fedfuse.flower.roster import saved_roster
from fedfuse.records import events, record
from fedfuse.records.directory import EVENTS, EXPERIMENT, ROUNDS
from fedfuse.records.record import RoundRecord, accuracies
from fedfuse.types import FedfuseError

RECENT = 10  # refusals that are listed


@dataclass(frozen=True)
class NodeStatus:
    """A node: its name, state at the SuperLink, client number, and how its answers fared."""

    name: str
    state: str  # online, offline, registered (never online), not registered; ? if the SuperLink does not answer
    client: int | None
    accepted: int
    refused: int


@dataclass(frozen=True)
class Status:
    nodes: Sequence[NodeStatus]
    run: Path | None
    rounds: int  # finished
    total: int
    state: str  # the kind of the last event that begins or ends a run; none
    accuracy: float | None  # of the last evaluated round
    refusals: Sequence[tuple[int, str, str]]  # round, node or client, reason: the last RECENT
    problem: str | None  # why the SuperLink could not be asked


def status(place: Place, run: Path | None = None) -> Status:
    """Return the state of the newest run of this server's folder, or of `run`."""
    run = run or _newest(place.runs)
    history = [] if run is None else record.read(run / ROUNDS)
    names = {} if run is None else saved_roster(run)
    problem, states = None, None
    control = Control(place)
    try:
        states = control.states()
    except FedfuseError as error:
        problem = str(error)
    ids = control.registered()
    keys = {file.stem for file in place.nodes.glob("*.pub")}
    clients = {name: client for client, name in names.items()}
    nodes = [
        _node(name, _state(ids.get(name), states), clients.get(name), history)
        for name in sorted({*keys, *clients}, key=lambda name: (clients.get(name, len(clients)), name))
    ]
    refusals = [
        (outcome.round, names.get(int(client), f"client {client}"), reason)
        for outcome in history
        for client, reason in outcome.rejected.items()
    ]
    total = 0 if run is None else load(run / EXPERIMENT).run.rounds
    accuracy = next(reversed(accuracies(history).values()), None)
    return Status(nodes, run, len(history), total, _run_state(run), accuracy, refusals[-RECENT:], problem)


def _newest(runs: Path) -> Path | None:
    found = [folder for folder in runs.iterdir() if (folder / EXPERIMENT).exists()] if runs.is_dir() else []
    return max(found, key=lambda folder: (folder / EXPERIMENT).stat().st_mtime, default=None)


def _run_state(run: Path | None) -> str:
    kinds = [] if run is None else [event.kind for event in events.read(run / EVENTS)]
    decisive = [kind for kind in kinds if kind in ("begun", "resumed", "stopped", "finished")]
    return decisive[-1] if decisive else "waiting for nodes"


def _state(id: str | None, states: dict[str, str] | None) -> str:
    if states is None:
        return "?"
    return "not registered" if id is None else states.get(id, "not registered")


def _node(name: str, state: str, client: int | None, history: Sequence[RoundRecord]) -> NodeStatus:
    key = str(client)
    accepted = sum(key in outcome.clients for outcome in history)
    return NodeStatus(name, state, client, accepted, sum(key in outcome.rejected for outcome in history))
