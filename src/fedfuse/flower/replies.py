"""The replies of one round, pulled one at a time by a few threads and available in any order.

A pull may block for as long as a node takes to upload, or forever. So the threads are daemons, and `take` waits only
until its deadline. Early replies wait in memory while they are few and small, else on disk.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from threading import Condition, Thread
from time import monotonic

from flwr.app import Message
from flwr.serverapp import Grid

from fedfuse.flower import wire
from fedfuse.types import FedfuseError

THREADS = 3  # concurrent pulls, not counting those that hang
HUNG = 15.0  # seconds after which a pull counts as hanging: its node has announced a reply but is still uploading
IN_MEMORY = 64 << 20  # bytes of waiting replies
SHORTEST, LONGEST = 0.2, 1.0  # seconds between two pulls of a missing reply: a thirtieth of the wait so far
PER_SECOND = 20  # pulls at most, for any number of awaited replies
TRIES = 5  # errors in pulling one reply before giving up


@dataclass
class Reply:
    """A reply to one message: its sender, facts and blob, or the problem with it."""

    sender: int
    answers: str  # id of the message that it replies to
    about: wire.About = field(default_factory=dict)
    blob: bytes | Path = b""
    problem: str | None = None

    def take(self) -> bytes:
        """Return the blob and remove it from memory or disk."""
        blob, self.blob = self.blob, b""
        if isinstance(blob, bytes):
            return blob
        content = blob.read_bytes()
        blob.unlink()
        return content


class Replies:
    """`with Replies(grid, ids, folder) as replies: replies.take(id, deadline)`."""

    def __init__(self, grid: Grid, ids: Sequence[str], folder: Path) -> None:
        self._grid, self._folder = grid, folder
        self._start = monotonic()
        self._waiting = [(self._start + k / PER_SECOND, id) for k, id in enumerate(ids)]  # a heap
        self._tries = dict.fromkeys(ids, 0)
        self._ready: dict[str, list[Reply]] = {}
        self._pulls: dict[str, float] = {}  # id -> start of the pull in progress
        self._threads = 0
        self._changed = Condition()
        self._stopped = False
        self._reachable = False  # whether the SuperLink has ever answered
        self._error: Exception | None = None
        self._names = count()  # file names

    def __enter__(self) -> Replies:
        with self._changed:
            self._start_threads()
        return self

    def __exit__(self, *exception: object) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        shutil.rmtree(self._folder, ignore_errors=True)

    def take(self, id: str, deadline: float) -> list[Reply]:
        """Return the replies to this message; none if there are none by the deadline (of the monotonic clock)."""
        with self._changed:
            while id not in self._ready:
                left = deadline - monotonic()
                if left <= 0:
                    break
                self._start_threads()
                self._changed.wait(min(left, LONGEST))
            if id not in self._ready and not self._reachable and self._error is not None:
                raise FedfuseError(
                    f"the SuperLink gives no replies: {wire.excerpt(self._error)}; every finished round is saved: "
                    "continue with --resume once it is back"
                ) from self._error
            return self._ready.pop(id, [])

    def _start_threads(self) -> None:
        """Start threads for the awaited replies, up to THREADS that do not hang, so that slow nodes block no others."""
        for _ in range(min(THREADS, len(self._waiting)) - self._active()):
            self._threads += 1
            Thread(target=self._pull_all, daemon=True, name="fedfuse-pull").start()

    def _active(self) -> int:
        """Return the number of threads that do not hang."""
        now = monotonic()
        return self._threads - sum(now - since > HUNG for since in self._pulls.values())

    def _pull_all(self) -> None:
        while (id := self._next()) is not None:
            try:
                replies = [self._read(message) for message in self._grid.pull_messages([id])]
            except Exception as error:  # no reply and no network error ends more than this pull
                self._pull_failed(id, error)
                continue
            self._pull_ended(id, replies)

    def _next(self) -> str | None:
        """Wait until a pull is due and return its id; None if this thread is no longer needed."""
        with self._changed:
            while self._waiting and not self._stopped and self._active() <= THREADS:
                early = self._waiting[0][0] - monotonic()
                if early <= 0:
                    _, id = heappop(self._waiting)
                    self._pulls[id] = monotonic()
                    return id
                self._changed.wait(early)
            self._threads -= 1
            return None

    def _pull_ended(self, id: str, replies: list[Reply]) -> None:
        with self._changed:
            del self._pulls[id]
            self._reachable = True
            if replies:
                self._spill(replies)
                self._ready[id] = replies
                self._changed.notify_all()
                return
            self._pull_later(id)

    def _pull_failed(self, id: str, error: Exception) -> None:
        with self._changed:
            del self._pulls[id]
            self._error = error
            self._tries[id] += 1
            if self._tries[id] >= TRIES:
                problem = f"sent a reply that cannot be pulled: {type(error).__name__}: {error}"
                self._ready[id] = [Reply(0, id, problem=wire.excerpt(problem))]
                self._changed.notify_all()
                return
            self._pull_later(id)

    def _pull_later(self, id: str) -> None:
        """Schedule another pull. The pause grows with the duration of the round and the failures of this reply."""
        now = monotonic()
        pause = min(LONGEST, max(SHORTEST, (now - self._start) / 30)) * 2 ** self._tries[id]
        heappush(self._waiting, (now + max(pause, len(self._waiting) / PER_SECOND), id))

    def _spill(self, replies: Iterable[Reply]) -> None:
        """Move replies to disk that exceed IN_MEMORY together with those in memory; a single one stays."""
        used = sum(len(r.blob) for each in self._ready.values() for r in each if isinstance(r.blob, bytes))
        for reply in replies:
            if not isinstance(reply.blob, bytes) or self._stopped:
                continue
            if not used or used + len(reply.blob) <= IN_MEMORY:
                used += len(reply.blob)
                continue
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / str(next(self._names))
            path.write_bytes(reply.blob)
            reply.blob = path

    @staticmethod
    def _read(message: Message) -> Reply:
        reply = Reply(message.metadata.src_node_id, message.metadata.reply_to_message_id)
        if message.has_error():
            reply.problem = f"failed at its node: {wire.excerpt(message.error.reason)}"
            return reply
        try:
            reply.about = _relevant(wire.about(message))
            if "failure" in reply.about:
                reply.problem = wire.excerpt(reply.about["failure"])
            else:
                reply.blob = wire.blob(message, wire.UPDATE)
        except FedfuseError as error:
            reply.problem = f"sent {error}"
        return reply


def _relevant(facts: wire.About) -> wire.About:
    """Return only the facts in use, with bounded texts: more would only use memory while the reply waits."""
    relevant = {key: facts[key] for key in wire.REPLIED if key in facts}
    return {key: wire.excerpt(value) if isinstance(value, str) else value for key, value in relevant.items()}
