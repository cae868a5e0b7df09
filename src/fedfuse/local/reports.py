"""Reports: what a client sends and keeps besides its model. Each is called as report(result, ctx) once a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fedfuse.context import Context
from fedfuse.types import Groups, Snapshot, Task


@dataclass(frozen=True)
class LocalResult:
    """A finished local training: its task, the client's memory before it, the trained model and the number of steps."""

    task: Task
    memory: Groups
    model: Snapshot
    steps: int


class Report(Protocol):
    """Returns what is sent and what is kept. What is kept replaces the client's whole memory."""

    def __call__(self, result: LocalResult, ctx: Context) -> tuple[Groups, Groups]: ...
