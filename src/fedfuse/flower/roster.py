"""Which node serves which client: as the nodes declare it, else in the order of their ids.

A node's config declares which client it serves (`partition-id=3`) and optionally how capable it is (`capability=2.5`)
and what it is called (`name="hospital-a"`). A node is asked once, when it is first online. The answers are saved in the
run directory, with the run's own id, under which nodes store their clients' memory.

The experiment states the clients of the start. A node with its own data that serves none of them joins as a further
client, in any round.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from time import monotonic, sleep

import torch
from flwr.app import ConfigRecordValues, Message, MessageType
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
LONGEST_NAME = 60
MOST_EXAMPLES = 10_000_000  # that a node may state; `run.max_examples` bounds what its answers claim


@dataclass(frozen=True)
class _Saved:
    """The contents of `flower.json`."""

    run: str
    nodes: Mapping[int, int]
    capabilities: Mapping[int, float]
    joined: Sequence[int | None] = ()
    names: Mapping[int, str] = field(default_factory=dict)


@dataclass
class Roster:
    """The nodes of one run. `seen` holds all that have answered, including those that serve no client."""

    path: Path
    clients: int  # of the experiment; those that join have the next numbers
    run: str = field(default_factory=lambda: secrets.token_hex(16))
    nodes: dict[int, int] = field(default_factory=dict)  # client -> node
    capabilities: dict[int, float] = field(default_factory=dict)  # by client
    joined: list[int | None] = field(default_factory=list)  # what each client that has joined declared to be
    names: dict[int, str] = field(default_factory=dict)  # by client
    examples: dict[int, int] = field(default_factory=dict)  # by client: what its node counted when it was asked
    count: bool = False  # whether nodes are asked to count their examples
    former: dict[int, int] = field(default_factory=dict)  # node -> client, before the run was resumed
    seen: set[int] = field(default_factory=set)
    looks: Counter[int] = field(default_factory=Counter)  # updates in which a node that has not answered was online
    silent: Counter[int] = field(default_factory=Counter)  # how often it did not answer
    begun: bool = False  # the capabilities of the experiment's clients are then fixed: architectures follow them

    @staticmethod
    def open(folder: Path, clients: int, count: bool = False) -> Roster:
        """Open the saved roster, or a new one. Nodes are asked again, since their ids may have changed."""
        path = folder / FILE
        if not path.exists():
            return Roster(path, clients, count=count)
        saved = read_json(path, _Saved, "restore it; without it, nodes treat a resumed run as a new one")
        return Roster(
            path,
            clients,
            saved.run,
            capabilities=dict(saved.capabilities),
            joined=list(saved.joined),
            names=dict(saved.names),
            count=count,
            former={node: client for client, node in saved.nodes.items()},
            begun=True,
        )

    def save(self) -> None:
        nodes = {**{client: node for node, client in self.former.items()}, **self.nodes}
        write_json(self.path, asdict(_Saved(self.run, nodes, self.capabilities, self.joined, self.names)))

    def served(self, online: set[int]) -> list[int]:
        """Return the clients that have a node online."""
        return sorted(client for client, node in self.nodes.items() if node in online)

    def declared(self, client: int) -> int:
        """Return the partition-id that the node of this client declares, if it declares one."""
        return client if client < self.clients else self.joined[client - self.clients] or client

    def update(self, grid: Grid, timeout: float) -> set[int]:
        """Ask the new nodes, and return all nodes that are online."""
        online = set(grid.get_node_ids())
        new = sorted(node for node in online - self.seen if self._due(node))
        if new:
            answers = _ask(grid, new, self.path.parent / SCRATCH / "hello", timeout, self.count)
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
        while not set(range(self.clients)) <= set(served := self.served(self.update(grid, answer))):
            if monotonic() >= deadline:
                break
            sleep(PAUSE)
        if len(served) < least:
            raise FedfuseError(
                f"{len(served)} of {self.clients} clients have a node after {timeout:g} s, but {least} must have one: "
                f"start SuperNodes with --node-config 'partition-id=0' to {self.clients - 1}, raise wait, or lower "
                "start and run.quorum"
            )
        if not self.begun and self.capability() is None:
            self.capabilities.clear()
        self.begun = True
        self.save()

    def capability(self) -> Tensor | None:
        """Return the capabilities (K,) of the experiment's clients, or None unless every client's node declares one."""
        if not all(k in self.capabilities for k in range(self.clients)):
            return None
        return torch.tensor([self.capabilities[k] for k in range(self.clients)], dtype=torch.float64)

    def _enter(self, answers: Mapping[int, wire.About], online: set[int]) -> None:
        for node, facts in sorted(answers.items(), key=lambda answer: (answer[0] not in self.former, answer[0])):
            self.seen.add(node)
            client = self._client(node, facts, online)
            # While a client's node is online, another node cannot claim the same client.
            if client is None or self.nodes.get(client) in online:
                continue
            self.nodes[client] = node
            capability, name, examples = (facts.get(key) for key in ("capability", "name", "examples"))
            fixed = self.begun and client < self.clients
            if isinstance(capability, int | float) and isfinite(capability) and not fixed:
                self.capabilities[client] = float(capability)
            if isinstance(name, str):
                self.names[client] = wire.excerpt(name)[:LONGEST_NAME]
            if type(examples) is int and 1 <= examples <= MOST_EXAMPLES:
                self.examples[client] = examples

    def _client(self, node: int, facts: wire.About, online: set[int]) -> int | None:
        """Return the client that this node serves, which may be a new one; None if there is none for it."""
        number, own = facts.get("partition-id"), facts.get("own-data") is True
        if number is None:
            if not own:  # it can serve any client of the experiment, whose share of the data it reads
                return next((k for k in range(self.clients) if self.nodes.get(k) not in online), None)
            return self._undeclared(node)
        if type(number) is not int or number < 0:
            return None
        if number < self.clients:
            return number
        if not own:
            return None
        return self.clients + self.joined.index(number) if number in self.joined else self._join(number)

    def _undeclared(self, node: int) -> int:
        """Return the client of a node with its own data that declares none: never one that another node has had."""
        if self.former.get(node) not in (None, *self.nodes):
            return self.former[node]
        free = next((k for k in range(self.clients + len(self.joined)) if k not in self.nodes), None)
        return self._join(None) if free is None else free

    def _join(self, number: int | None) -> int:
        self.joined.append(number)
        return self.clients + len(self.joined) - 1


def _ask(grid: Grid, nodes: Iterable[int], folder: Path, timeout: float, count: bool) -> dict[int, wire.About]:
    """Return what each node declares. Nodes that do not answer in time are absent."""
    node_ids = list(nodes)
    query: dict[str, ConfigRecordValues] = {"protocol": wire.PROTOCOL, "count": count}
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


def saved_roster(folder: Path) -> dict[int, str]:
    """Return the names of the clients of a run, by client; `client 3` for those whose nodes have no name."""
    path = folder / FILE
    if not path.exists():
        return {}
    saved = read_json(path, _Saved, "restore it")
    return {client: saved.names.get(client, f"client {client}") for client in sorted(saved.nodes)}
