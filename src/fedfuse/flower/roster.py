"""Which node serves which client: as the nodes declare it, else in the order of their ids.

A node says in its node config which client it serves (`partition-id=3`) and, if it likes, how capable it is
(`capability=2.5`). It is asked once, when it is first seen. What is found out is written down in the run directory,
with the run's own id, by which nodes file what their clients keep.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from time import monotonic, sleep

import torch
from flwr.app import Message, MessageType
from flwr.serverapp import Grid
from torch import Tensor

from fedfuse.files import write_whole
from fedfuse.flower import wire
from fedfuse.flower.replies import Replies
from fedfuse.records.directory import SCRATCH
from fedfuse.types import FedfuseError

FILE = "flower.json"
RAREST = 32  # looks after which a node that never says who it is is asked again: each time holds up a round
PAUSE = 1.0  # seconds between two looks for nodes that are awaited


@dataclass
class Roster:
    """The nodes of one run. `seen` holds all that have been asked, also those that serve nobody."""

    path: Path
    clients: int
    run: str = field(default_factory=lambda: secrets.token_hex(16))
    nodes: dict[int, int] = field(default_factory=dict)  # client -> node
    capabilities: dict[int, float] = field(default_factory=dict)  # by client
    seen: set[int] = field(default_factory=set)
    looks: Counter[int] = field(default_factory=Counter)  # how often a node was there that is not known yet
    silent: Counter[int] = field(default_factory=Counter)  # how often it did not say who it is
    begun: bool = False  # then capabilities are settled: architectures went by them

    @staticmethod
    def open(folder: Path, clients: int) -> Roster:
        """As it was written; nodes are asked again, since ids may have changed hands."""
        path = folder / FILE
        if not path.exists():
            return Roster(path, clients)
        facts = json.loads(path.read_text(encoding="utf-8"))
        declared = {int(client): value for client, value in facts["capabilities"].items()}
        return Roster(path, clients, facts["run"], capabilities=declared, begun=True)

    def save(self) -> None:
        facts = {"run": self.run, "nodes": self.nodes, "capabilities": self.capabilities}
        write_whole(self.path, json.dumps(facts).encode())

    def update(self, grid: Grid, timeout: float) -> set[int]:
        """Ask the nodes that are new, and give those that are online."""
        online = set(grid.get_node_ids())
        new = sorted(node for node in online - self.seen if self._due(node))
        if new:
            declared = _declared(grid, new, self.path.parent / SCRATCH / "hello", timeout)
            self.silent.update(set(new) - set(declared))
            self._enter(declared, online)
            if self.begun:
                self.save()
        return online

    def _due(self, node: int) -> bool:
        """Whether to ask this node who it is: at once, and ever more rarely while it does not answer."""
        self.looks[node] += 1
        return self.looks[node] % min(RAREST, 1 << self.silent[node]) == 0

    def wait(self, grid: Grid, least: int, timeout: float, answer: float) -> None:
        """Until every client has a node that is online, and at most `timeout` seconds where the `least` number has."""
        deadline = monotonic() + timeout
        while (served := self._served(grid, answer)) < self.clients and monotonic() < deadline:
            sleep(PAUSE)
        if served < least:
            raise FedfuseError(
                f"{served} of {self.clients} clients have a node after {timeout:g} s, and {least} must have one: start "
                f"SuperNodes with --node-config 'partition-id=0' to {self.clients - 1}, wait longer, or ask for fewer"
            )
        if not self.begun and len(self.capabilities) < self.clients:
            self.capabilities.clear()
        self.begun = True
        self.save()

    def _served(self, grid: Grid, answer: float) -> int:
        online = self.update(grid, answer)
        return sum(node in online for node in self.nodes.values())

    def capability(self) -> Tensor | None:
        """(K,) where every client's node declares one."""
        if set(self.capabilities) != set(range(self.clients)):
            return None
        return torch.tensor([self.capabilities[k] for k in range(self.clients)], dtype=torch.float64)

    def _enter(self, declared: Mapping[int, wire.About], online: set[int]) -> None:
        for node, facts in sorted(declared.items()):
            self.seen.add(node)
            client = facts.get("partition-id", self._free(online))
            # A client that a node online serves is not taken from it by another that claims the same number.
            if type(client) is not int or not 0 <= client < self.clients or self.nodes.get(client) in online:
                continue
            self.nodes[client] = node
            capability = facts.get("capability")
            if isinstance(capability, int | float) and isfinite(capability) and not self.begun:
                self.capabilities[client] = float(capability)

    def _free(self, online: set[int]) -> int | None:
        """The first client without a node, for a node that does not say whom it serves."""
        return next((k for k in range(self.clients) if self.nodes.get(k) not in online), None)


def _declared(grid: Grid, nodes: Iterable[int], folder: Path, timeout: float) -> dict[int, wire.About]:
    """What each node says of itself; one that does not answer is asked again when it is next looked for."""
    asked = list(nodes)
    greeting = {"protocol": wire.PROTOCOL}
    messages = [Message(wire.content(greeting), node, MessageType.QUERY, ttl=timeout) for node in asked]
    ids = list(grid.push_messages(messages))
    deadline = monotonic() + timeout
    found: dict[int, wire.About] = {}
    with Replies(grid, ids, folder) as replies:
        for node, id in zip(asked, ids, strict=True):
            for answer in replies.take(id, deadline):
                if answer.sender == node and answer.about.get("protocol") == wire.PROTOCOL:
                    found[node] = answer.about
    return found
