"""The interface between the round and the engine that runs the clients' work."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import torch

from fedfuse.algorithm import Algorithm
from fedfuse.context import Context
from fedfuse.local import uploads
from fedfuse.types import Failure, Groups, ServerState, Task, Update

LOCAL_FAILURE = "failed in its local work"


class Engine(Protocol):
    """Runs tasks and yields the answers in the order of the tasks, not of arrival.

    The engine stores the clients' memory between rounds and hands it to the checkpoint. New memory takes effect when
    its round is settled. A client whose answer was refused, lost or left out of the fusion keeps its previous memory:
    otherwise SCAFFOLD's control variates, for example, would change without the server's.
    """

    def present(self, ctx: Context, claimed: Mapping[int, int]) -> tuple[Context, Sequence[int]]:
        """Return the context with all clients known now, and those that can be asked, in ascending order.

        Over a network clients join and leave between rounds, and their numbers of examples change. claimed: the number
        in each client's last accepted answer.
        """

    def run(
        self, algorithm: Algorithm, tasks: Iterable[Task], ctx: Context, server: ServerState | None = None
    ) -> Iterator[Update | Failure]:
        """Run the tasks. Over a network, replies that do not fit the models of `server` are refused early."""

    def settle(self, accepted: Collection[int]) -> None:
        """End the round: keep the new memory of the clients whose answers were accepted, and no other."""

    def memory(self) -> Mapping[int, Groups]: ...

    def restore(self, memory: Mapping[int, Groups]) -> None: ...

    def peak_memory(self) -> int:
        """Return the peak memory of the engine's other processes so far, in bytes; 0 if there are none."""

    def close(self) -> None: ...


def everyone(ctx: Context) -> tuple[Context, Sequence[int]]:
    """Return what `Engine.present` does where the clients are those of the experiment, and always there."""
    return ctx, range(len(ctx.archs))


def attempt(algorithm: Algorithm, task: Task, memory: Groups, ctx: Context) -> tuple[Update | Failure, Groups]:
    """Run one client's work. Return its answer and its new memory; any error becomes a `Failure` of this client."""
    try:
        update = algorithm.local(task, uploads.without_residual(memory), ctx)
        update = uploads.pack(update, task, memory, ctx)
        return replace(update, memory={}), update.memory
    except (MemoryError, torch.OutOfMemoryError):
        return Failure(task.client, f"ran out of memory in its local work{_remedy(ctx)}"), memory
    except (Exception, SystemExit) as error:  # a user's code may even call sys.exit
        return Failure(task.client, f"{LOCAL_FAILURE}: {type(error).__name__}: {error}"), memory


def _remedy(ctx: Context) -> str:
    if ctx.nets.device.type == "cpu":
        return ""
    return f" on {ctx.nets.device}: lower local.batch_size or run.workers"


class ClientMemory:
    """Client memory in this process, for engines that store it nowhere else.

    New memory takes effect when its round is settled.
    """

    def __init__(self) -> None:
        self._memory: dict[int, Groups] = {}
        self._new: dict[int, Groups] = {}  # of the current round, which is not settled yet

    def present(self, ctx: Context, claimed: Mapping[int, int]) -> tuple[Context, Sequence[int]]:
        return everyone(ctx)

    def attempt(self, algorithm: Algorithm, task: Task, ctx: Context) -> Update | Failure:
        """Run one client's work, and store its new memory."""
        answer, memory = attempt(algorithm, task, self._memory.get(task.client, {}), ctx)
        if memory:
            self._new[task.client] = memory
        return answer

    def settle(self, accepted: Collection[int]) -> None:
        self._memory |= {client: memory for client, memory in self._new.items() if client in accepted}
        self._new.clear()

    def memory(self) -> Mapping[int, Groups]:
        return dict(sorted(self._memory.items()))

    def restore(self, memory: Mapping[int, Groups]) -> None:
        self._memory = dict(memory)

    def peak_memory(self) -> int:
        return 0

    def close(self) -> None:
        pass
