"""A client's memory from round to round, stored at its own node.

A round's memory is valid only once the server has accepted the client's update of that round. The node learns this from
its next task, which names the round whose memory to use, so memories are stored by round. A server that resumes from an
earlier checkpoint names an earlier round, and the node uses that round's memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from flwr.app import ArrayRecord, RecordDict

from fedfuse import codec
from fedfuse.files import write_whole
from fedfuse.flower import wire
from fedfuse.records import checkpoint
from fedfuse.types import FedfuseError, Groups

KEEP = checkpoint.KEEP + 1  # rounds: as far back as the server's checkpoints, and one more
RUN = re.compile(r"[0-9a-f]{32}")  # it becomes a folder name, and the server sends it


class Store(Protocol):
    """Bytes by round, for one run and client."""

    def rounds(self) -> Iterable[int]: ...

    def read(self, round: int) -> bytes: ...

    def write(self, round: int, blob: bytes) -> None: ...

    def drop(self, round: int) -> None: ...


class InFolder:
    """Files in a folder that the node chooses. They survive restarts."""

    def __init__(self, folder: Path, run: str, client: int) -> None:
        self.folder = folder.expanduser() / run / f"client-{client}"

    def rounds(self) -> list[int]:
        return [int(path.stem.removeprefix("round-")) for path in self.folder.glob("round-*.safetensors")]

    def read(self, round: int) -> bytes:
        return self._path(round).read_bytes()

    def write(self, round: int, blob: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(self._path(round), blob)

    def drop(self, round: int) -> None:
        self._path(round).unlink(missing_ok=True)

    def _path(self, round: int) -> Path:
        return self.folder / f"round-{round:06d}.safetensors"


class InState:
    """Flower's context state. It lasts as long as the SuperNode's process and this Flower run."""

    def __init__(self, state: RecordDict, run: str, client: int) -> None:
        self.state, self.prefix = state, f"memory/{run}/{client}/"

    def rounds(self) -> list[int]:
        return [int(key.removeprefix(self.prefix)) for key in self.state if key.startswith(self.prefix)]

    def read(self, round: int) -> bytes:
        record = self.state[f"{self.prefix}{round}"]
        assert isinstance(record, ArrayRecord)
        return record[wire.BLOB].data

    def write(self, round: int, blob: bytes) -> None:
        self.state[f"{self.prefix}{round}"] = ArrayRecord({wire.BLOB: wire.array_of(blob)})

    def drop(self, round: int) -> None:
        self.state.pop(f"{self.prefix}{round}", None)


class Memory:
    """One client's memories in one run."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @staticmethod
    def of(folder: str | None, state: RecordDict, run: str, client: int) -> Memory:
        if not RUN.fullmatch(run):
            raise FedfuseError(f"received run id {run!r}, not 32 hexadecimal digits: install the server's fedfuse")
        return Memory(InState(state, run, client) if folder is None else InFolder(Path(folder), run, client))

    def recall(self, round: int) -> Groups:
        """Return the memory of `round`; empty for round 0."""
        if round == 0:
            return {}
        if round not in self._store.rounds():
            raise FedfuseError(
                f"has lost its memory of round {round} at its node: give the node a folder that survives restarts "
                '(node config memory-dir="..."), or start a new run'
            )
        return codec.decode(self._store.read(round))[0]

    def keep(self, round: int, groups: Groups, recalled: int) -> None:
        """Store `groups` under `round`. Drop old memories, and those of refused or undone rounds after `recalled`."""
        self._store.write(round, codec.encode(groups, {}))
        earlier = sorted(r for r in self._store.rounds() if r <= recalled and r != round)
        rounds = {round, *earlier[-KEEP:]}
        for other in list(self._store.rounds()):
            if other not in rounds:
                self._store.drop(other)
