"""The engine over Flower's Grid: each client's work is done at its own node.

Replies pass these gates in this order: asked in this round, and the first; bytes within what the architecture needs;
header against the server's template; then, as in every engine, `vet`. What does not pass, does not come, or comes too
late costs its client's update only.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic

import torch
from flwr.app import ConfigRecordValues, Message, MessageType
from flwr.serverapp import Grid

from fedfuse.algorithm import Algorithm
from fedfuse.context import Context
from fedfuse.data.examples import Examples
from fedfuse.flower import wire
from fedfuse.flower.deadline import within
from fedfuse.flower.replies import Replies, Reply
from fedfuse.flower.reply_checks import Expected, Refused
from fedfuse.flower.roster import Roster
from fedfuse.types import Failure, FedfuseError, Groups, ServerState, Task, Update

HELLO = 120.0  # seconds that a node that has just come has to say who it is
REACH = 60.0  # seconds that a SuperLink has to answer
PUSHED = 16  # messages in one push: what they hold is in memory at once, unless it is the same
AT_NODE = "at-node"  # group in a checkpoint: the round whose memory counts, which itself lies at the node


@dataclass(frozen=True)
class Asked:
    """A client that was sent a task: to which node, in which message."""

    client: int
    node: int
    id: str


class OverGrid:
    """Clients at the nodes of `roster`, each given `timeout` seconds a round."""

    def __init__(self, grid: Grid, roster: Roster, timeout: float, scratch: Path) -> None:
        self._grid, self._roster, self._timeout, self._scratch = grid, roster, timeout, scratch
        self._counts: dict[int, int] = {}  # client -> the round whose memory counts
        self._fresh: dict[int, int] = {}  # the same, of the round that is not settled yet

    def run(
        self, algorithm: Algorithm, tasks: Iterable[Task], ctx: Context, server: ServerState | None = None
    ) -> Iterator[Update | Failure]:
        if server is None:
            raise FedfuseError("replies over a network are held against the server's models: give the server's state")
        self._fresh.clear()
        online = within(HELLO + REACH, lambda: self._roster.update(self._grid, HELLO))
        deadline, attempt = monotonic() + self._timeout, secrets.token_hex(8)
        pushed = self._pushed(tasks, online, ctx, attempt)
        ids = [asked.id for asked in pushed if isinstance(asked, Asked)]
        with Replies(self._grid, ids, self._scratch / attempt) as replies:
            for asked in pushed:
                if isinstance(asked, Failure):
                    yield asked
                    continue
                arrived = replies.take(asked.id, deadline)
                try:
                    yield self._admitted(arrived, asked, attempt, algorithm, ctx, server)
                except Refused as refusal:
                    yield Failure(asked.client, str(refusal))

    def _pushed(self, tasks: Iterable[Task], online: set[int], ctx: Context, attempt: str) -> list[Asked | Failure]:
        """Send the tasks, a list of messages at a time. A SuperLink that does not take them ends the run."""
        encoder, stream = wire.Encoder(), iter(tasks)
        sent: list[Asked | Failure] = []
        while batch := list(islice(stream, PUSHED)):
            nodes = [self._node(task.client, online) for task in batch]
            messages = [
                self._message(task, node, ctx, attempt, encoder)
                for task, node in zip(batch, nodes, strict=True)
                if node is not None
            ]
            ids = iter(within(max(REACH, self._timeout), partial(_push, self._grid, messages)))
            for task, node in zip(batch, nodes, strict=True):
                sent.append(_noted(task.client, node, None if node is None else next(ids, None)))
        return sent

    def _node(self, client: int, online: set[int]) -> int | None:
        node = self._roster.nodes.get(client)
        return node if node in online else None

    def _message(self, task: Task, node: int, ctx: Context, attempt: str, encoder: wire.Encoder) -> Message:
        about: dict[str, ConfigRecordValues] = {
            "protocol": wire.PROTOCOL,
            "run": self._roster.run,
            "client": task.client,
            "round": task.round,
            "attempt": attempt,
            "memory": self._counts.get(task.client, 0),
            "arch": ctx.archs[task.client],
            "clients": len(ctx.archs),
            **_statistics(ctx.data.train),
        }
        content = wire.content(about, wire.TASK, encoder.array(task))
        return Message(content, node, MessageType.TRAIN, ttl=self._timeout, group_id=str(task.round))

    def _admitted(
        self, arrived: list[Reply], asked: Asked, attempt: str, algorithm: Algorithm, ctx: Context, server: ServerState
    ) -> Update:
        if not arrived:
            raise Refused(f"did not answer within {self._timeout:g} s")
        if len(arrived) > 1:
            raise Refused("answered more than once")
        (reply,) = arrived
        if reply.problem is not None:
            raise Refused(reply.problem)
        claimed = (reply.sender, reply.answers, *(reply.about.get(key) for key in ("client", "round", "attempt")))
        if claimed != (asked.node, asked.id, asked.client, ctx.round, attempt):
            raise Refused("answered what it was not asked in this round")
        template = server.models.get(ctx.archs[asked.client])
        update = Expected(asked.client, template, algorithm.expect(server, asked.client, ctx)).update(reply.take())
        if reply.about.get("kept") is True:
            self._fresh[asked.client] = ctx.round
        return update

    def settle(self, accepted: Collection[int]) -> None:
        self._counts |= {client: round for client, round in self._fresh.items() if client in accepted}
        self._fresh.clear()

    def memory(self) -> Mapping[int, Groups]:
        return {client: {AT_NODE: {"round": torch.tensor(r)}} for client, r in sorted(self._counts.items())}

    def restore(self, memory: Mapping[int, Groups]) -> None:
        if any(set(groups) != {AT_NODE} for groups in memory.values()):
            raise FedfuseError(
                "this run was begun on one machine, and what its clients keep lies in its checkpoint, not at nodes: "
                "go on with `fedfuse run --resume`, or choose another --out"
            )
        self._counts = {client: int(groups[AT_NODE]["round"]) for client, groups in memory.items()}

    def peak_memory(self) -> int:
        return 0

    def close(self) -> None:
        pass


def _push(grid: Grid, messages: list[Message]) -> list[str]:
    return list(grid.push_messages(messages)) if messages else []


def _noted(client: int, node: int | None, id: str | None) -> Asked | Failure:
    if node is None:
        return Failure(client, "has no node online")
    return Failure(client, "could not be sent its task") if not id else Asked(client, node, id)


def _statistics(train: Examples) -> dict[str, ConfigRecordValues]:
    """By what a node that brings its own data normalises it: all clients must see it alike."""
    return {
        "classes": train.classes,
        "mean": [float(m) for m in train.mean.flatten()],
        "std": [float(s) for s in train.std.flatten()],
    }
