"""Clients in threads of this process: for models and algorithms that no other process could import.

Threads share torch's global generator, from which layers such as dropout draw: clients whose layers do draw wait for
each other (`Nets.layer_randomness`). The bits are those of one client after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from queue import SimpleQueue
from time import perf_counter

import torch

from fedfuse.algorithm import Algorithm
from fedfuse.context import Context, Nets
from fedfuse.engines.engine import ClientMemory
from fedfuse.predict import WORTH_A_LANE
from fedfuse.types import Failure, FedfuseError, ServerState, Task, Update


class InThreads(ClientMemory):
    """At most `count` clients at once."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count
        self._step_seconds = 0.0  # of the last client that worked alone
        self._nets: SimpleQueue[Nets] = SimpleQueue()  # one for each thread: a net serves one client at a time
        self._made = 0
        self._executor = ThreadPoolExecutor(count, "fedfuse-client", torch.set_num_threads, (torch.get_num_threads(),))

    def run(
        self, algorithm: Algorithm, tasks: Iterable[Task], ctx: Context, server: ServerState | None = None
    ) -> Iterator[Update | Failure]:
        stream = iter(tasks)
        for task in stream:
            if self._step_seconds > WORTH_A_LANE:
                yield from self._in_threads(algorithm, chain([task], stream), ctx)
                return
            start = perf_counter()
            answer = self.attempt(algorithm, task, ctx)
            steps = answer.metrics.get("steps", 1) if isinstance(answer, Update) else 1
            self._step_seconds = (perf_counter() - start) / max(1, steps)
            yield answer

    def _in_threads(self, algorithm: Algorithm, tasks: Iterable[Task], ctx: Context) -> Iterator[Update | Failure]:
        generator = torch.random.get_rng_state()
        pending: deque[Future[Update | Failure]] = deque()
        try:
            for task in tasks:
                pending.append(self._executor.submit(self._work, algorithm, task, ctx))
                if len(pending) > self._count:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
        if not torch.equal(torch.random.get_rng_state(), generator):
            raise FedfuseError(
                "a net drew random numbers that drew none in its first round, which threads cannot keep apart: set "
                "run.workers = 1"
            )

    def _work(self, algorithm: Algorithm, task: Task, ctx: Context) -> Update | Failure:
        nets = self._lend(ctx.nets)
        try:
            return self.attempt(algorithm, task, replace(ctx, nets=nets))
        finally:
            self._nets.put(nets)

    def _lend(self, like: Nets) -> Nets:
        """Nets that no other thread has. The executor has no more threads than there are of them."""
        if self._nets.empty() and self._made < self._count:
            self._made += 1
            return Nets(like.classes, like.shape, like.draws, concurrent=True)
        return self._nets.get()

    def close(self) -> None:
        self._executor.shutdown(cancel_futures=True)
