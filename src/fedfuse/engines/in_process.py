"""One client after the other, in this process."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from fedfuse.algorithm import Algorithm
from fedfuse.context import Context
from fedfuse.engines.engine import ClientMemory, attempt
from fedfuse.types import Failure, Groups, ServerState, Task, Update


class InProcess:
    def __init__(self) -> None:
        self._memory = ClientMemory()

    def run(
        self, algorithm: Algorithm, tasks: Iterable[Task], ctx: Context, server: ServerState | None = None
    ) -> Iterator[Update | Failure]:
        for task in tasks:
            answer, memory = attempt(algorithm, task, self._memory.of(task.client), ctx)
            self._memory.add(task.client, memory)
            yield answer

    def settle(self, accepted: Collection[int]) -> None:
        self._memory.settle(accepted)

    def memory(self) -> Mapping[int, Groups]:
        return self._memory.all()

    def restore(self, memory: Mapping[int, Groups]) -> None:
        self._memory.restore(memory)

    def peak_memory(self) -> int:
        return 0

    def close(self) -> None:
        pass
