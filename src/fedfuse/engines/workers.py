"""Run clients in parallel: one process per worker, each with one compute thread.

Processes, not threads (`benchmarks/speed/engines.py` measures both): tiny nets spend their time in Python, where
threads wait for each other, and layers that draw random numbers share one generator per process. A worker starts from
the experiment's file and the federation's memory-mapped folder, so data is shared, nothing is pickled, and a user's
script needs no `if __name__ == "__main__"`. Models are exchanged as files in a scratch folder: the round's model is
written once however many clients start from it, and early answers wait there for their turn.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from fedfuse import codec
from fedfuse.algorithm import Algorithm
from fedfuse.context import Context
from fedfuse.engines.engine import everyone
from fedfuse.types import Failure, FedfuseError, Groups, ServerState, Task, Tensors, Update

AHEAD = 4  # answers that may wait on disk, per worker, while the server fuses an earlier one


class Workers:
    """`count` worker processes over the experiment's file and the federation that is saved in `folder`."""

    def __init__(self, count: int, experiment: Path, folder: Path) -> None:
        self.folder = folder
        self._window = count * AHEAD
        self._memory: dict[int, Path] = {}  # client -> file with its memory
        self._new: dict[int, Path] = {}  # the same, of the current round, which is not settled yet
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        self._workers = [_spare.pop() if _spare else _Worker() for _ in range(count)]
        for number, worker in enumerate(self._workers):
            worker.open(experiment.resolve(), folder, number)
            self._idle.put(worker)
        # One thread per worker, which only waits for its process to answer.
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="fedfuse-worker")

    def present(self, ctx: Context, claimed: Mapping[int, int]) -> tuple[Context, Sequence[int]]:
        return everyone(ctx)

    def run(
        self, algorithm: Algorithm, tasks: Iterable[Task], ctx: Context, server: ServerState | None = None
    ) -> Iterator[Update | Failure]:
        """Yield the answers in the order of the tasks. Each worker builds `algorithm` from the experiment's file."""
        files = _Files(self.folder / f"round-{ctx.round}")
        pending: deque[Future[Path | Failure]] = deque()
        clients: deque[int] = deque()
        try:
            for task in tasks:
                clients.append(task.client)
                pending.append(self._threads.submit(self._ask, task.client, self._message(task, files)))
                if len(pending) >= self._window:
                    yield _read_answer(clients.popleft(), pending.popleft().result())
            while pending:
                yield _read_answer(clients.popleft(), pending.popleft().result())
        finally:
            self._cancel(pending)
            files.remove()

    def _cancel(self, pending: Iterable[Future[Path | Failure]]) -> None:
        """Cancel the work of a round that ends early: no answer may arrive later, and long ones are not waited for."""
        running = [future for future in pending if not future.cancel()]
        if running:
            for worker in self._workers:
                worker.stop()  # it restarts with its next task
        for future in running:
            future.exception()

    def _message(self, task: Task, files: _Files) -> dict[str, Any]:
        return {
            "client": task.client,
            "round": task.round,
            "arch": task.model and task.model.arch,
            "params": task.model and files.write(task.model.params),
            "buffers": task.model and files.write(task.model.buffers),
            "extra": {name: files.write(group) for name, group in task.extra.items()},
            "memory": str(self._memory[task.client]) if task.client in self._memory else None,
            "answer": str(files.folder / f"client-{task.client}"),
        }

    def _ask(self, client: int, message: dict[str, Any]) -> Path | Failure:
        worker = self._idle.get()
        try:
            reply = worker.ask(message)
        except _Died as error:
            return Failure(client, f"its worker process died: {error}")
        finally:
            self._idle.put(worker)
        if reply["memory"] is not None:
            self._new[client] = Path(reply["memory"]).replace(self.folder / f"new-{client}")
        return Path(reply["answer"]) if reply["failure"] is None else Failure(client, reply["failure"])

    def settle(self, accepted: Collection[int]) -> None:
        for client, file in self._new.items():
            if client in accepted:
                self._settle(client, file)
            else:
                file.unlink()
        self._new.clear()

    def _settle(self, client: int, file: Path) -> None:
        self._memory[client] = file.replace(self.folder / f"memory-{client}")

    def memory(self) -> Mapping[int, Groups]:
        return {client: codec.decode(path.read_bytes())[0] for client, path in sorted(self._memory.items())}

    def restore(self, memory: Mapping[int, Groups]) -> None:
        for client, groups in memory.items():
            file = self.folder / f"restored-{client}"
            file.write_bytes(codec.encode(groups, {}))
            self._settle(client, file)

    def peak_memory(self) -> int:
        return sum(worker.peak_memory() for worker in self._workers)

    def close(self) -> None:
        self._threads.shutdown()
        _spare.extend(self._workers)
        shutil.rmtree(self.folder, ignore_errors=True)


def _read_answer(client: int, answer: Path | Failure) -> Update | Failure:
    if isinstance(answer, Failure):
        return answer
    try:
        return codec.decode_update(answer.read_bytes())
    except FedfuseError as error:
        return Failure(client, f"sent an update that cannot be read: {error}")
    finally:
        answer.unlink()


class _Files:
    """The round's groups of tensors as files, each written once however many tasks contain it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._paths: dict[int, tuple[Tensors, str]] = {}  # a reference keeps the id of the group unique

    def write(self, group: Tensors) -> str:
        if id(group) not in self._paths:
            path = self.folder / f"group-{len(self._paths)}"
            path.write_bytes(codec.encode({"group": group}, {}))
            self._paths[id(group)] = group, str(path)
        return self._paths[id(group)][1]

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class Marker:
    """A file that tells `fedfuse watch` whether a worker has started: that takes seconds, before any record."""

    def __init__(self, folder: Path, number: int) -> None:
        self._file = folder / f"worker-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        self._file.write_text("starting", encoding="utf-8")

    def ready(self) -> None:
        self._file.write_text("ready", encoding="utf-8")

    @staticmethod
    def states(scratch: Path) -> list[str]:
        """Return the state of each worker of the run that has this scratch folder."""
        try:
            return [file.read_text(encoding="utf-8") for file in sorted(scratch.glob("*/worker-*"))]
        except OSError:  # the run ended meanwhile
            return []


class _Died(Exception):
    pass


class _Worker:
    """A process that answers one message at a time. If it dies, the next task starts a new one."""

    def __init__(self) -> None:
        self._open_message: dict[str, Any] = {}
        self._start()

    def open(self, experiment: Path, folder: Path, number: int) -> None:
        """Serve this experiment from now on. The process opens it at its first task, so that all start at once."""
        # A process that is reused was started with the folder and the modules of an earlier run.
        place = {"cwd": str(Path.cwd()), "path": _module_path()}
        self._open_message = {"experiment": str(experiment), "folder": str(folder), "number": number, **place}
        self._marker = Marker(folder, number)
        self._is_open = False

    def _start(self) -> None:
        path = os.pathsep.join(_module_path())
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fedfuse.runs.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            # Ctrl-C reaches this process only, which then stops its workers. A session of their own would do that too,
            # but on Linux it is scheduled apart: `nice` before a run would not hold for its workers.
            process_group=0,
        )
        self._is_open = False

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to a task. Raise `_Died` if the process ends instead."""
        if self._process.poll() is not None:
            self._start()
        if not self._is_open:
            self._open()
        return self._exchange(message)

    def _open(self) -> None:
        try:
            problem = self._exchange(self._open_message)["problem"]
        except _Died as error:
            raise FedfuseError(f"a worker process could not start: {error}") from None
        if problem is not None:
            raise FedfuseError(f"a worker process could not open the experiment: {problem}")
        self._is_open = True
        self._marker.ready()

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line.endswith(b"\n"):
            raise _Died(self._exit_reason())
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _exit_reason(self) -> str:
        code = self._process.wait()
        if code == -signal.SIGKILL:
            return "killed (signal 9), perhaps out of memory"
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def peak_memory(self) -> int:
        """Return the peak memory of the process in bytes; 0 where the system does not report it."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
        except OSError:
            return 0
        match = re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)
        return 1024 * int(match[1]) if match else 0

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def _module_path() -> list[str]:
    """Return where this process finds modules, also the user's own: a worker must find them too."""
    return [p or str(Path.cwd()) for p in sys.path]


# Starting a process takes seconds (it imports torch), so workers are reused by later runs of this process.
_spare: list[_Worker] = []


@atexit.register
def _stop_spare() -> None:
    for worker in _spare:
        worker.stop()
