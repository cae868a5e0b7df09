"""An algorithm is a value: what a client is sent, what it does, and how the server fuses the answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedfuse.context import Context
from fedfuse.types import Groups, ServerState, Task, Update

Facts = Mapping[str, Any]  # what a round wants on record, JSON-able


class Brief(Protocol):
    def __call__(self, server: ServerState, client: int, ctx: Context) -> Task: ...


class LocalWork(Protocol):
    def __call__(self, task: Task, memory: Groups, ctx: Context) -> Update: ...


class Fuse(Protocol):
    def __call__(self, server: ServerState, updates: Iterable[Update], ctx: Context) -> tuple[ServerState, Facts]: ...


@dataclass(frozen=True)
class SendModel:
    """Each client is sent the server's model of its own architecture."""

    def __call__(self, server: ServerState, client: int, ctx: Context) -> Task:
        return Task(client, ctx.round, server.models[ctx.archs[client]])


@dataclass(frozen=True)
class Algorithm:
    """A federated algorithm. Anything that supplies `brief`, `local` and `fuse` is one."""

    name: str
    local: LocalWork
    fuse: Fuse
    brief: Brief = field(default_factory=SendModel)
