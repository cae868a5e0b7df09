"""The worker process: `python -m fedfuse.runs.worker`. Messages are lines of JSON.

The first message names the experiment and the folder of its data; tasks follow. Replies go to the original standard
output; anything that user code prints goes to standard error. The process exits when its standard input closes, so no
worker outlives its run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import torch

from fedfuse import codec
from fedfuse.algorithm import Algorithm
from fedfuse.compute import devices
from fedfuse.config.experiment import load
from fedfuse.context import Context
from fedfuse.data.federation import Federation
from fedfuse.engines.engine import attempt
from fedfuse.runs.setup import set_up
from fedfuse.types import Failure, FedfuseError, Groups, Snapshot, Task, Tensors


@lru_cache(maxsize=8)
def _group(path: str) -> Tensors:
    """Read a group of tensors. The cache makes all clients of this worker share one copy of the round's model."""
    return codec.decode(Path(path).read_bytes())[0]["group"]


def _task(message: dict[str, Any]) -> Task:
    model = None
    if message["arch"] is not None:
        model = Snapshot(message["arch"], _group(message["params"]), _group(message["buffers"]))
    extra = {name: _group(path) for name, path in message["extra"].items()}
    return Task(message["client"], message["round"], model, extra)


def answer(message: dict[str, Any], algorithm: Algorithm, ctx: Context) -> dict[str, Any]:
    """Run one task. Write the update and the client's memory to files, and return the paths."""
    memory: Groups = {} if message["memory"] is None else codec.decode(Path(message["memory"]).read_bytes())[0]
    result, memory = attempt(algorithm, _task(message), memory, ctx.at(message["round"]))
    path = Path(message["answer"])
    reply: dict[str, Any] = {"answer": None, "failure": None, "memory": None}
    if isinstance(result, Failure):
        return {**reply, "failure": result.reason}
    path.write_bytes(codec.encode_update(result))
    if memory:
        file = path.with_suffix(".memory")
        file.write_bytes(codec.encode(memory, {}))
        reply["memory"] = str(file)
    return {**reply, "answer": str(path)}


def open_(message: dict[str, Any]) -> tuple[Algorithm, Context]:
    """Load the experiment and its federation, whose arrays are memory-mapped."""
    _group.cache_clear()
    os.chdir(message["cwd"])
    sys.path[:] = message["path"]
    experiment = load(message["experiment"])
    torch.set_num_threads(experiment.run.threads)
    device = devices.spread(devices.resolve(experiment.run.device), message["number"])
    devices.set_arithmetic(device, experiment.run.precision, experiment.run.deterministic)
    setup = set_up(experiment, Federation.open(Path(message["folder"])), device)
    return setup.algorithm, setup.ctx


def _lines() -> Iterator[bytes]:
    """Yield the lines of standard input. When it closes, exit the process, even in the middle of a task."""
    lines: SimpleQueue[bytes] = SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            lines.put(line)
        os._exit(0)

    Thread(target=read, daemon=True).start()
    while True:
        yield lines.get()


def _keep_freed_memory() -> None:
    """Free one large block, so that glibc serves later blocks of up to its size from memory that it keeps.

    A worker maps its data and so never frees a large block by itself. Then glibc maps every larger tensor anew, and the
    system fills its pages with zeros: tens of thousands of page faults per client. The block is never written to, so it
    takes no memory. Other C libraries are not affected, nor is glibc if `MALLOC_MMAP_THRESHOLD_` is set.
    """
    torch.empty(31 << 20, dtype=torch.uint8)  # glibc adapts to freed blocks of less than 32 MiB


def main() -> None:
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run handles Ctrl-C and stops its workers
    _keep_freed_memory()
    serving: tuple[Algorithm, Context] | None = None
    for line in _lines():
        message = json.loads(line)
        if "experiment" in message:
            problem = None
            try:
                serving = open_(message)
            except FedfuseError as error:
                problem = str(error)
            reply: dict[str, Any] = {"problem": problem}
        else:
            assert serving is not None
            try:
                reply = answer(message, *serving)
            except FileNotFoundError:  # a run that was stopped removes its files, and then its workers
                os._exit(1)
        replies.write(json.dumps(reply).encode() + b"\n")
        replies.flush()


if __name__ == "__main__":
    main()
