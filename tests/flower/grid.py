"""A Grid in this process: nodes that answer when they are asked, and a hook by which one of them can lie."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

Tamper = Callable[[Message, Message], list[Message]]  # (asked, honest reply) -> what is pulled


class LocalGrid(Grid):
    """`nodes` maps ids to the node configs of nodes that all run `app`."""

    def __init__(self, app: ClientApp, nodes: dict[int, dict[str, int | float | str]]) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # a ServerApp's process has them
        self.app = app
        self.contexts = {id: Context(0, id, config, RecordDict(), {}) for id, config in nodes.items()}
        self.tamper: dict[int, Tamper] = {}  # by node
        self.pushes: list[list[Message]] = []
        self._asked: dict[str, Message] = {}
        self._replies: dict[str, Iterable[Message]] = {}
        self._ids = count(1)

    def set_run(self, run: Run) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Run:
        raise NotImplementedError

    def create_message(self, *args: object, **settings: object) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def get_nodes(self) -> Iterable[NodeInfo]:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        pushed = list(messages)
        self.pushes.append(pushed)
        ids = [f"message-{next(self._ids)}" for _ in pushed]
        for id, message in zip(ids, pushed, strict=True):
            message.metadata.__dict__["_message_id"] = id
            self._asked[id], self._replies[id] = message, self._answered(message)
        return ids

    def _answered(self, asked: Message) -> Iterable[Message]:
        """At once, while the server waits: in one process both would draw from torch's global generator."""
        node = asked.metadata.dst_node_id
        honest = self.app(asked, self.contexts[node])
        tamper = self.tamper.get(node) if asked.metadata.message_type == "train" else None
        return [honest] if tamper is None else tamper(asked, honest)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        (id,) = message_ids
        return self._replies[id]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError
