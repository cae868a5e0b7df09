"""One client after the other, in this process."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from fedfuse.algorithm import Algorithm
from fedfuse.context import Context
from fedfuse.engines.engine import attempt
from fedfuse.types import Failure, Groups, ServerState, Task, Update


class InProcess:
    def __init__(self) -> None:
        self._memory: dict[int, Groups] = {}
        self._fresh: dict[int, Groups] = {}  # of the round that is not settled yet

    def run(
        self, algorithm: Algorithm, tasks: Iterable[Task], ctx: Context, server: ServerState | None = None
    ) -> Iterator[Update | Failure]:
        for task in tasks:
            answer, kept = attempt(algorithm, task, self._memory.get(task.client, {}), ctx)
            if kept:
                self._fresh[task.client] = kept
            yield answer

    def settle(self, accepted: Collection[int]) -> None:
        self._memory |= {client: kept for client, kept in self._fresh.items() if client in accepted}
        self._fresh.clear()

    def memory(self) -> Mapping[int, Groups]:
        return dict(sorted(self._memory.items()))

    def restore(self, memory: Mapping[int, Groups]) -> None:
        self._memory = dict(memory)

    def peak_memory(self) -> int:
        return 0

    def close(self) -> None:
        pass
