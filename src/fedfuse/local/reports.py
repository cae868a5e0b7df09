"""Reports: what a client sends and keeps beside its model. Each is called as report(result, ctx) once a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fedfuse.context import Context
from fedfuse.types import Groups, Snapshot, Task


@dataclass(frozen=True)
class LocalResult:
    """A client's finished training: its task, what it remembered, its model, and the steps that it took."""

    task: Task
    memory: Groups
    model: Snapshot
    steps: int


class Report(Protocol):
    """Gives what is sent and what is kept. The memory of one round is all that the next one has."""

    def __call__(self, result: LocalResult, ctx: Context) -> tuple[Groups, Groups]: ...
