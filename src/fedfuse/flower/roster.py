"""Which node serves which client: as the nodes declare it, else in the order of their ids.

A node's config declares which client it serves (`partition-id=3`) and optionally how capable it is (`capability=2.5`).
A node is asked once, when it is first online. The answers are saved in the run directory, with the run's own id, under
which nodes store their clients' memory.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from time import monotonic, sleep

import torch
from flwr.app import Message, MessageType
from flwr.serverapp import Grid
from torch import Tensor

from fedfuse.flower import wire
from fedfuse.flower.replies import Replies
from fedfuse.records.directory import SCRATCH
from fedfuse.records.sealed import read_json, write_json
from fedfuse.types import FedfuseError

FILE = "flower.json"
RAREST = 32  # updates after which a node that never answers is asked again: each time delays a round
PAUSE = 1.0  # seconds between two updates while waiting for nodes


@dataclass(frozen=True)
class _Saved:
    """The contents of `flower.json`."""

    run: str
    nodes: Mapping[int, int]
    capabilities: Mapping[int, float]


@dataclass
class Roster:
    """The nodes of one run. `seen` holds all that have answered, including those that serve no client."""

    path: Path
    clients: int
    run: str = field(default_factory=lambda: secrets.token_hex(16))
    nodes: dict[int, int] = field(default_factory=dict)  # client -> node
    capabilities: dict[int, float] = field(default_factory=dict)  # by client
    seen: set[int] = field(default_factory=set)
    looks: Counter[int] = field(default_factory=Counter)  # updates in which a node that has not answered was online
    silent: Counter[int] = field(default_factory=Counter)  # how often it did not answer
    begun: bool = False  # capabilities are then fixed: architectures were assigned by them

    @staticmethod
    def open(folder: Path, clients: int) -> Roster:
        """Open the saved roster, or a new one. Nodes are asked again, since their ids may have changed."""
        path = folder / FILE
        if not path.exists():
            return Roster(path, clients)
        saved = read_json(path, _Saved, "restore it; without it, nodes treat a resumed run as a new one")
        return Roster(path, clients, saved.run, capabilities=dict(saved.capabilities), begun=True)

    def save(self) -> None:
        write_json(self.path, asdict(_Saved(self.run, self.nodes, self.capabilities)))

    def update(self, grid: Grid, timeout: float) -> set[int]:
        """Ask the new nodes, and return all nodes that are online."""
        online = set(grid.get_node_ids())
        new = sorted(node for node in online - self.seen if self._due(node))
        if new:
            answers = _ask(grid, new, self.path.parent / SCRATCH / "hello", timeout)
            self.silent.update(set(new) - set(answers))
            self._enter(answers, online)
            if self.begun:
                self.save()
        return online

    def _due(self, node: int) -> bool:
        """Return whether to ask this node now: at first yes, then less and less often while it does not answer."""
        self.looks[node] += 1
        return self.looks[node] % min(RAREST, 1 << self.silent[node]) == 0

    def wait(self, grid: Grid, least: int, timeout: float, answer: float) -> None:
        """Wait until every client has a node online; raise if fewer than `least` have one after `timeout` seconds."""
        deadline = monotonic() + timeout
        while (served := self._count_served(grid, answer)) < self.clients and monotonic() < deadline:
            sleep(PAUSE)
        if served < least:
            raise FedfuseError(
                f"{served} of {self.clients} clients have a node after {timeout:g} s, but {least} must have one: start "
                f"SuperNodes with --node-config 'partition-id=0' to {self.clients - 1}, raise wait, or lower start "
                "and run.quorum"
            )
        if not self.begun and len(self.capabilities) < self.clients:
            self.capabilities.clear()
        self.begun = True
        self.save()

    def _count_served(self, grid: Grid, answer: float) -> int:
        online = self.update(grid, answer)
        return sum(node in online for node in self.nodes.values())

    def capability(self) -> Tensor | None:
        """Return the capabilities (K,), or None unless every client's node declares one."""
        if set(self.capabilities) != set(range(self.clients)):
            return None
        return torch.tensor([self.capabilities[k] for k in range(self.clients)], dtype=torch.float64)

    def _enter(self, answers: Mapping[int, wire.About], online: set[int]) -> None:
        for node, facts in sorted(answers.items()):
            self.seen.add(node)
            client = facts.get("partition-id", self._free(online))
            # While a client's node is online, another node cannot claim the same client.
            if type(client) is not int or not 0 <= client < self.clients or self.nodes.get(client) in online:
                continue
            self.nodes[client] = node
            capability = facts.get("capability")
            if isinstance(capability, int | float) and isfinite(capability) and not self.begun:
                self.capabilities[client] = float(capability)

    def _free(self, online: set[int]) -> int | None:
        """Return the first client without a node, for a node that declares none."""
        return next((k for k in range(self.clients) if self.nodes.get(k) not in online), None)


def _ask(grid: Grid, nodes: Iterable[int], folder: Path, timeout: float) -> dict[int, wire.About]:
    """Return what each node declares. Nodes that do not answer in time are absent."""
    node_ids = list(nodes)
    query = {"protocol": wire.PROTOCOL}
    messages = [Message(wire.content(query), node, MessageType.QUERY, ttl=timeout) for node in node_ids]
    ids = list(grid.push_messages(messages))
    deadline = monotonic() + timeout
    facts: dict[int, wire.About] = {}
    with Replies(grid, ids, folder) as replies:
        for node, id in zip(node_ids, ids, strict=True):
            for answer in replies.take(id, deadline):
                if answer.sender == node and answer.about.get("protocol") == wire.PROTOCOL:
                    facts[node] = answer.about
    return facts
