"""The interface between the round and whatever does the clients' work."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from fedfuse.algorithm import Algorithm
from fedfuse.context import Context
from fedfuse.types import Failure, Groups, ServerState, Task, Update


class Engine(Protocol):
    """Runs tasks and yields the answers in the order of the tasks, whoever was first.

    Client memory belongs to the clients: the engine keeps it for them between rounds, and gives it to the checkpoint.
    What a client keeps of a round counts only once the round is settled. A client whose answer was refused or lost
    remembers what it did before: else SCAFFOLD's control variates, for one, would move without the server's.
    """

    def run(
        self, algorithm: Algorithm, tasks: Iterable[Task], ctx: Context, server: ServerState | None = None
    ) -> Iterator[Update | Failure]:
        """Do the tasks. An engine that reaches over a network refuses early what cannot answer `server`'s models."""

    def settle(self, accepted: Collection[int]) -> None:
        """End the round: the answers of these clients were accepted."""

    def memory(self) -> Mapping[int, Groups]: ...

    def restore(self, memory: Mapping[int, Groups]) -> None: ...

    def peak_memory(self) -> int:
        """The most bytes that other processes than this one have held for it so far; 0 where there are none."""

    def close(self) -> None: ...


def attempt(algorithm: Algorithm, task: Task, memory: Groups, ctx: Context) -> tuple[Update | Failure, Groups]:
    """One client's work, and what it keeps. Whatever goes wrong there costs this client's update only."""
    try:
        update = algorithm.local(task, memory, ctx)
        return replace(update, memory={}), update.memory
    except MemoryError:
        return Failure(task.client, "ran out of memory in its local work"), memory
    except (Exception, SystemExit) as error:  # a user's code may even leave the program
        return Failure(task.client, f"failed in its local work: {type(error).__name__}: {error}"), memory


class ClientMemory:
    """What clients keep, in this process: the part of an engine that has no other place for it.

    What is new counts once its round is settled.
    """

    def __init__(self) -> None:
        self._settled: dict[int, Groups] = {}
        self._new: dict[int, Groups] = {}  # of the round that is not settled yet

    def attempt(self, algorithm: Algorithm, task: Task, ctx: Context) -> Update | Failure:
        """One client's work, with what it keeps."""
        answer, memory = attempt(algorithm, task, self._settled.get(task.client, {}), ctx)
        if memory:
            self._new[task.client] = memory
        return answer

    def settle(self, accepted: Collection[int]) -> None:
        self._settled |= {client: memory for client, memory in self._new.items() if client in accepted}
        self._new.clear()

    def memory(self) -> Mapping[int, Groups]:
        return dict(sorted(self._settled.items()))

    def restore(self, memory: Mapping[int, Groups]) -> None:
        self._settled = dict(memory)

    def peak_memory(self) -> int:
        return 0

    def close(self) -> None:
        pass
