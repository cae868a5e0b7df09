"""An algorithm is a value: what a client is sent, what it does, and how the server fuses the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedfuse.context import Context
from fedfuse.select import Selection
from fedfuse.types import Extras, Groups, ServerState, Task, Update

Facts = Mapping[str, Any]  # what a round wants on record, JSON-able


class Brief(Protocol):
    def __call__(self, server: ServerState, client: int, ctx: Context) -> Task: ...


class LocalWork(Protocol):
    def __call__(self, task: Task, memory: Groups, ctx: Context) -> Update: ...


class Fuse(Protocol):
    def __call__(self, server: ServerState, updates: Iterable[Update], ctx: Context) -> tuple[ServerState, Facts]: ...


class Expect(Protocol):
    """What a client's answer holds beside its model: vetting refuses an answer that holds anything else."""

    def __call__(self, server: ServerState, client: int, ctx: Context) -> Extras: ...


@dataclass(frozen=True)
class NothingMore:
    """The model is all that a client sends."""

    def __call__(self, server: ServerState, client: int, ctx: Context) -> Extras:
        return {}


def anything(ctx: Context) -> None:
    """Every experiment suits."""


def as_named(clients: Sequence[str], server: str) -> str:
    """The large model is what the experiment names."""
    return server


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
    expect: Expect = field(default_factory=NothingMore)
    selection: Selection = "uniform"  # how its paper draws cohorts, where an experiment leaves that open
    head: int | None = None  # every model ends in a shared head of this width
    large_server: bool = False  # the server has a model of its own, `models.server`: the one that is reported
    server_arch: Callable[[Sequence[str], str], str] = as_named  # of that model, from the clients' and the one named
    small_models: bool = True  # the server holds a model of each client architecture
    check: Callable[[Context], None] = anything  # a FedfuseError where an experiment does not suit, before it runs
