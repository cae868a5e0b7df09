"""Run clients in threads of this process, for models and algorithms that no other process can import.

Threads share torch's global generator, from which layers such as dropout draw, so clients with such layers wait for
each other (`Nets.layer_randomness`). The bits are the same as with one client after the other.
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
    """Runs at most `count` clients at once."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count
        self._step_seconds = 0.0  # of the last client that ran alone
        self._nets: SimpleQueue[Nets] = SimpleQueue()  # one per thread: a net trains one client at a time
        self._total = 0
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
                "a net drew random numbers, but none in its first round; such draws are not reproducible in threads: "
                "set run.workers = 1"
            )

    def _work(self, algorithm: Algorithm, task: Task, ctx: Context) -> Update | Failure:
        nets = self._take_nets(ctx.nets)
        try:
            return self.attempt(algorithm, task, replace(ctx, nets=nets))
        finally:
            self._nets.put(nets)

    def _take_nets(self, template: Nets) -> Nets:
        """Return nets that no other thread uses. There are as many as the executor has threads."""
        if self._nets.empty() and self._total < self._count:
            self._total += 1
            return Nets(
                template.classes, template.shape, template.draws,
                concurrent=True, device=template.device, precision=template.precision,
            )  # fmt: skip
        return self._nets.get()

    def close(self) -> None:
        self._executor.shutdown(cancel_futures=True)
