"""The engine over Flower's Grid: each client works at its own node.

Replies are checked in this order: one reply per task, to a task of this round; no more bytes than the architecture
needs; header as in the server's template; then, as in every engine, `vet`. A reply that fails a check, is missing or
comes too late costs only its client's update.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic, sleep

import torch
from flwr.app import ConfigRecordValues, Message, MessageType
from flwr.serverapp import Grid

from fedfuse.algorithm import Algorithm
from fedfuse.context import Context
from fedfuse.data.examples import Examples
from fedfuse.flower import wire
from fedfuse.flower.deadline import with_timeout
from fedfuse.flower.members import with_members
from fedfuse.flower.replies import Replies, Reply
from fedfuse.flower.reply_checks import Expected, Refused
from fedfuse.flower.roster import PAUSE, Roster
from fedfuse.local import uploads
from fedfuse.types import Failure, FedfuseError, Groups, ServerState, Task, Update

HELLO = 120.0  # seconds for a new node to declare which client it serves
REACH = 60.0  # seconds for the SuperLink to answer
PUSH_SIZE = 16  # messages per push: their contents are in memory at once, except what they share
AT_NODE = "at-node"  # group in a checkpoint: the round of the valid memory, which is stored at the node


@dataclass(frozen=True)
class SentTask:
    """A client that was sent a task, with its node and the id of the message."""

    client: int
    node: int
    id: str


class OverGrid:
    """Runs clients at the nodes of `roster`, with `timeout` seconds per round.

    Before a round it waits up to `wait` seconds until `least` clients have a node online.
    """

    def __init__(
        self, grid: Grid, roster: Roster, timeout: float, scratch: Path, *, least: int = 1, wait: float = 0.0
    ) -> None:
        self._grid, self._roster, self._timeout, self._scratch = grid, roster, timeout, scratch
        self._least, self._wait = least, wait
        self._valid: dict[int, int] = {}  # client -> the round of its valid memory
        self._new: dict[int, int] = {}  # the same, for the round that is not settled yet

    def present(self, ctx: Context, claimed: Mapping[int, int]) -> tuple[Context, list[int]]:
        deadline = monotonic() + self._wait
        while len(clients := self._roster.served(self._online())) < self._least and monotonic() < deadline:
            sleep(PAUSE)
        roster = self._roster
        return with_members(ctx, len(roster.joined), roster.capabilities, {**roster.examples, **claimed}), clients

    def _online(self) -> set[int]:
        return with_timeout(HELLO + REACH, lambda: self._roster.update(self._grid, HELLO))

    def run(
        self, algorithm: Algorithm, tasks: Iterable[Task], ctx: Context, server: ServerState | None = None
    ) -> Iterator[Update | Failure]:
        if server is None:
            raise FedfuseError(
                "replies over a network are checked against the server's models: pass the server's state"
            )
        self._new.clear()
        online = self._online()
        deadline, attempt = monotonic() + self._timeout, secrets.token_hex(8)
        outcomes = self._push_tasks(tasks, online, ctx, attempt)
        ids = [sent_task.id for sent_task in outcomes if isinstance(sent_task, SentTask)]
        with Replies(self._grid, ids, self._scratch / attempt) as replies:
            for sent_task in outcomes:
                if isinstance(sent_task, Failure):
                    yield sent_task
                    continue
                answers = replies.take(sent_task.id, deadline)
                try:
                    yield self._checked_update(answers, sent_task, attempt, algorithm, ctx, server)
                except Refused as refusal:
                    yield Failure(sent_task.client, str(refusal))

    def _push_tasks(
        self, tasks: Iterable[Task], online: set[int], ctx: Context, attempt: str
    ) -> list[SentTask | Failure]:
        """Send the tasks in batches of messages. Raise if the SuperLink does not accept them."""
        encoder, stream = wire.Encoder(), iter(tasks)
        outcomes: list[SentTask | Failure] = []
        while batch := list(islice(stream, PUSH_SIZE)):
            nodes = [self._node(task.client, online) for task in batch]
            messages = [
                self._message(task, node, ctx, attempt, encoder)
                for task, node in zip(batch, nodes, strict=True)
                if node is not None
            ]
            ids = iter(with_timeout(max(REACH, self._timeout), partial(_push, self._grid, messages)))
            for task, node in zip(batch, nodes, strict=True):
                outcomes.append(_outcome(task.client, node, None if node is None else next(ids, None)))
        return outcomes

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
            "memory": self._valid.get(task.client, 0),
            "arch": ctx.archs[task.client],
            "upload": ctx.precision(task.client).upload,
            "net": ctx.precision(task.client).net,
            "clients": len(ctx.archs),
            **_statistics(ctx.data.train),
        }
        if (declared := self._roster.declared(task.client)) != task.client:
            about["declared"] = declared
        content = wire.content(about, wire.TASK, encoder.array(task))
        return Message(content, node, MessageType.TRAIN, ttl=self._timeout, group_id=str(task.round))

    def _checked_update(
        self,
        answers: list[Reply],
        sent_task: SentTask,
        attempt: str,
        algorithm: Algorithm,
        ctx: Context,
        server: ServerState,
    ) -> Update:
        if not answers:
            raise Refused(f"did not answer within {self._timeout:g} s")
        if len(answers) > 1:
            raise Refused("answered more than once")
        (reply,) = answers
        if reply.problem is not None:
            raise Refused(reply.problem)
        identity = (reply.sender, reply.answers, *(reply.about.get(key) for key in ("client", "round", "attempt")))
        if identity != (sent_task.node, sent_task.id, sent_task.client, ctx.round, attempt):
            raise Refused("sent a reply that does not match its task of this round")
        template = server.models.get(ctx.archs[sent_task.client])
        packed = None if template is None else uploads.expected(template, sent_task.client, ctx)
        extras = algorithm.expect(server, sent_task.client, ctx)
        update = Expected(sent_task.client, template, extras, packed).update(reply.take())
        if reply.about.get("kept") is True:
            self._new[sent_task.client] = ctx.round
        return update

    def settle(self, accepted: Collection[int]) -> None:
        self._valid |= {client: round for client, round in self._new.items() if client in accepted}
        self._new.clear()

    def memory(self) -> Mapping[int, Groups]:
        return {client: {AT_NODE: {"round": torch.tensor(r)}} for client, r in sorted(self._valid.items())}

    def restore(self, memory: Mapping[int, Groups]) -> None:
        if any(set(groups) != {AT_NODE} for groups in memory.values()):
            raise FedfuseError(
                "this run was started on one machine, so its clients' memory is in its checkpoint, not at nodes: "
                "continue with `fedfuse run --resume`, or choose another --out"
            )
        self._valid = {client: int(groups[AT_NODE]["round"]) for client, groups in memory.items()}

    def peak_memory(self) -> int:
        return 0

    def close(self) -> None:
        pass


def _push(grid: Grid, messages: list[Message]) -> list[str]:
    return list(grid.push_messages(messages)) if messages else []


def _outcome(client: int, node: int | None, id: str | None) -> SentTask | Failure:
    if node is None:
        return Failure(client, "has no node online")
    return Failure(client, "could not be sent its task") if not id else SentTask(client, node, id)


def _statistics(train: Examples) -> dict[str, ConfigRecordValues]:
    """Return the statistics by which nodes with their own data normalise it, so that all clients do so alike."""
    return {
        "classes": train.classes,
        "vocabulary": train.vocabulary,
        "mean": [float(m) for m in train.mean.flatten()],
        "std": [float(s) for s in train.std.flatten()],
    }
