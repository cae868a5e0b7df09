"""Replies are looked for by few threads, often enough, and no node holds up another's."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from threading import Event, Lock

import pytest
from flwr.app import Message
from flwr.serverapp import Grid

from fedfuse.flower import replies
from fedfuse.flower.replies import Replies, Reply
from tests.flower.grid import LocalGrid


class Link(LocalGrid):
    """A SuperLink that has the replies `there` from the look on that is given, and blocks for those that `hang`."""

    def __init__(self, there: dict[str, int], hang: Iterable[str] = ()) -> None:
        self.there, self.hang = there, set(hang)
        self.looks: Counter[str] = Counter()
        self.release, self._lock = Event(), Lock()
        self.now = self.most = 0  # pulls under way that do not hang

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        (id,) = message_ids
        with self._lock:
            self.looks[id] += 1
            if id not in self.hang:
                self.now += 1
                self.most = max(self.most, self.now)
        if id in self.hang:
            self.release.wait(30)
            return []
        time.sleep(0.01)
        with self._lock:
            self.now -= 1
        return [id] if self.looks[id] >= self.there[id] else []  # type: ignore[list-item]


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message is its id here: what is read from real ones is tested with the engine."""
    monkeypatch.setattr(Replies, "_read", staticmethod(lambda id: Reply(1, id, blob=b"x")))


def taken(grid: Grid, ids: list[str], folder: Path, seconds: float) -> list[str]:
    deadline = time.monotonic() + seconds
    with Replies(grid, ids, folder) as made:
        return [id for id in ids if made.take(id, deadline)]


def test_each_reply_is_pulled_by_itself_and_few_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "PER_SECOND", 1000)
    ids = [f"m{k}" for k in range(40)]
    link = Link(dict.fromkeys(ids, 1))
    assert taken(link, ids, tmp_path, 20) == ids
    assert set(link.looks.values()) == {1}
    assert link.most <= replies.THREADS


def test_a_reply_that_is_not_there_is_looked_for_again_but_not_all_the_time(tmp_path: Path) -> None:
    link = Link({"early": 1, "late": 10**6})
    begun = time.monotonic()
    assert taken(link, ["early", "late"], tmp_path, 2.0) == ["early"]
    assert time.monotonic() - begun < 3
    assert 4 <= link.looks["late"] <= 2.0 / replies.SHORTEST + 1


def test_replies_that_are_too_much_for_memory_wait_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is never too much, however large: it would only be read back at once."""
    monkeypatch.setattr(replies, "IN_MEMORY", 10)
    monkeypatch.setattr(Replies, "_read", staticmethod(lambda id: Reply(1, id, blob=id.encode() * 20)))
    ids = ["a", "b", "c"]
    with Replies(Link(dict.fromkeys(ids, 1)), ids, tmp_path / "waiting") as made:
        while len(made._ready) < 3:
            time.sleep(0.02)
        assert len(list((tmp_path / "waiting").iterdir())) == 2
        for id in ids:
            (reply,) = made.take(id, time.monotonic() + 5)
            assert reply.take() == id.encode() * 20
            assert reply.take() == b""
        assert not list((tmp_path / "waiting").iterdir())
    assert not (tmp_path / "waiting").exists()


def test_many_nodes_do_not_make_more_looks_a_second(tmp_path: Path) -> None:
    ids = [f"m{k}" for k in range(200)]
    link = Link(dict.fromkeys(ids, 10**6))
    assert taken(link, ids, tmp_path, 2.0) == []
    assert sum(link.looks.values()) <= 2.0 * replies.PER_SECOND + replies.THREADS + 1


def test_nodes_that_upload_without_end_hold_up_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than there are threads; and once they are done there are no more threads than before."""
    monkeypatch.setattr(replies, "HUNG", 0.3)
    hanging, others = [f"h{k}" for k in range(7)], [f"m{k}" for k in range(10)]
    link = Link(dict.fromkeys([*hanging, *others], 2), hanging)
    with Replies(link, [*hanging, *others], tmp_path) as made:
        deadline = time.monotonic() + 20
        assert [id for id in others if made.take(id, deadline)] == others
        assert link.most <= replies.THREADS
        assert made._threads >= len(hanging)
        link.hang.clear()
        link.release.set()
        assert [id for id in hanging if made.take(id, deadline)] == hanging
        assert link.most <= replies.THREADS
    time.sleep(0.2)
    assert made._threads == 0
