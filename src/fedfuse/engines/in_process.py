"""Run one client after the other, in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fedfuse.algorithm import Algorithm
from fedfuse.context import Context
from fedfuse.engines.engine import ClientMemory
from fedfuse.types import Failure, ServerState, Task, Update


class InProcess(ClientMemory):
    def run(
        self, algorithm: Algorithm, tasks: Iterable[Task], ctx: Context, server: ServerState | None = None
    ) -> Iterator[Update | Failure]:
        return (self.attempt(algorithm, task, ctx) for task in tasks)
