"""Replies of one round, pulled one at a time by a few threads and handed out in any order that is asked for.

A pull may block for as long as a node takes to upload, or for good: so the threads are daemons, and who waits for a
reply waits until the deadline and no longer. Early replies wait in memory while they are few and small, else on disk.
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

THREADS = 3  # pulls at once, beside those that hang
HUNG = 15.0  # seconds after which a pull counts as hanging: its node has announced a reply, and still uploads
IN_MEMORY = 64 << 20  # bytes of replies that wait there
SHORTEST, LONGEST = 0.2, 1.0  # seconds between two looks for a reply that was not there: a thirtieth of the wait so far
PER_SECOND = 20  # looks at most, however many replies are waited for
TRIES = 5  # pulls of one reply that may fail in another way than by having nothing


@dataclass
class Reply:
    """What came for one message: who sent it, its facts and its blob, or why there is none."""

    sender: int
    answers: str  # id of the message that it is a reply to
    about: wire.About = field(default_factory=dict)
    blob: bytes | Path = b""
    problem: str | None = None

    def take(self) -> bytes:
        """The blob, once: it is neither held here nor on disk afterwards."""
        kept, self.blob = self.blob, b""
        if isinstance(kept, bytes):
            return kept
        blob = kept.read_bytes()
        kept.unlink()
        return blob


class Replies:
    """`with Replies(grid, ids, folder) as replies: replies.take(id, deadline)`."""

    def __init__(self, grid: Grid, ids: Sequence[str], folder: Path) -> None:
        self._grid, self._folder = grid, folder
        self._begun = monotonic()
        self._waiting = [(self._begun + k / PER_SECOND, id) for k, id in enumerate(ids)]  # a heap
        self._tries = dict.fromkeys(ids, 0)
        self._arrived: dict[str, list[Reply]] = {}
        self._pulls: dict[str, float] = {}  # what is being pulled, and since when
        self._threads = 0
        self._changed = Condition()
        self._stopped = False
        self._heard = False  # whether the SuperLink has ever answered
        self._error: Exception | None = None
        self._names = count()  # of files

    def __enter__(self) -> Replies:
        with self._changed:
            self._employ()
        return self

    def __exit__(self, *exception: object) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        shutil.rmtree(self._folder, ignore_errors=True)

    def take(self, id: str, deadline: float) -> list[Reply]:
        """What came for this message; nothing if nothing came by the deadline (of the monotonic clock)."""
        with self._changed:
            while id not in self._arrived:
                left = deadline - monotonic()
                if left <= 0:
                    break
                self._employ()
                self._changed.wait(min(left, LONGEST))
            if id not in self._arrived and not self._heard and self._error is not None:
                raise FedfuseError(
                    f"the SuperLink gives no replies: {wire.told(self._error)}; every finished round is kept: "
                    "go on with --resume once it is back"
                ) from self._error
            return self._arrived.pop(id, [])

    def _employ(self) -> None:
        """Threads for what is waited for, up to a few that do not hang: who uploads without end holds up no others."""
        for _ in range(min(THREADS, len(self._waiting)) - self._at_hand()):
            self._threads += 1
            Thread(target=self._pull_all, daemon=True, name="fedfuse-pull").start()

    def _at_hand(self) -> int:
        now = monotonic()
        return self._threads - sum(now - since > HUNG for since in self._pulls.values())

    def _pull_all(self) -> None:
        while (id := self._next()) is not None:
            try:
                found = [self._read(message) for message in self._grid.pull_messages([id])]
            except Exception as error:  # whatever a reply or the network holds ends this pull only
                self._failed(id, error)
                continue
            self._note(id, found)

    def _next(self) -> str | None:
        """What to look for next, once it is time; nothing if this thread is not needed any more."""
        with self._changed:
            while self._waiting and not self._stopped and self._at_hand() <= THREADS:
                early = self._waiting[0][0] - monotonic()
                if early <= 0:
                    _, id = heappop(self._waiting)
                    self._pulls[id] = monotonic()
                    return id
                self._changed.wait(early)
            self._threads -= 1
            return None

    def _note(self, id: str, found: list[Reply]) -> None:
        with self._changed:
            del self._pulls[id]
            self._heard = True
            if found:
                self._spill(found)
                self._arrived[id] = found
                self._changed.notify_all()
                return
            self._again(id)

    def _failed(self, id: str, error: Exception) -> None:
        with self._changed:
            del self._pulls[id]
            self._error = error
            self._tries[id] += 1
            if self._tries[id] >= TRIES:
                problem = f"sent a reply that cannot be pulled: {type(error).__name__}: {error}"
                self._arrived[id] = [Reply(0, id, problem=wire.told(problem))]
                self._changed.notify_all()
                return
            self._again(id)

    def _again(self, id: str) -> None:
        """Look for this one later: the later the longer the round takes, and the more often this one failed."""
        now = monotonic()
        pause = min(LONGEST, max(SHORTEST, (now - self._begun) / 30)) * 2 ** self._tries[id]
        heappush(self._waiting, (now + max(pause, len(self._waiting) / PER_SECOND), id))

    def _spill(self, found: Iterable[Reply]) -> None:
        """Replies that are too much beside those in memory go to disk; a single one does not."""
        held = sum(len(r.blob) for each in self._arrived.values() for r in each if isinstance(r.blob, bytes))
        for reply in found:
            if not isinstance(reply.blob, bytes) or self._stopped:
                continue
            if not held or held + len(reply.blob) <= IN_MEMORY:
                held += len(reply.blob)
                continue
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / str(next(self._names))
            path.write_bytes(reply.blob)
            reply.blob = path

    @staticmethod
    def _read(message: Message) -> Reply:
        found = Reply(message.metadata.src_node_id, message.metadata.reply_to_message_id)
        if message.has_error():
            found.problem = f"failed at its node: {wire.told(message.error.reason)}"
            return found
        try:
            found.about = _few(wire.about(message))
            if "failure" in found.about:
                found.problem = wire.told(found.about["failure"])
            else:
                found.blob = wire.blob(message, wire.UPDATE)
        except FedfuseError as error:
            found.problem = f"sent {error}"
        return found


def _few(facts: wire.About) -> wire.About:
    """The facts that are looked at. Others, or a text without end, would only be held while the reply waits."""
    known = {key: facts[key] for key in wire.REPLIED if key in facts}
    return {key: wire.told(value) if isinstance(value, str) else value for key, value in known.items()}
