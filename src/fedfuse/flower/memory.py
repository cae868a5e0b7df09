"""What a client keeps from round to round, at its own node.

A round's memory counts only once the server has accepted the round's answer, and the node learns that with its next
task: the task names the round whose memory is to be used. So memories are filed by round. A server that goes on from
an earlier checkpoint names an earlier round, and the node follows.
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

KEEP = checkpoint.KEEP + 1  # rounds: as far back as the server's checkpoints, and the one before
RUN = re.compile(r"[0-9a-f]{32}")  # it becomes the name of a folder, and comes from outside


class Store(Protocol):
    """Bytes by round, of one run and client."""

    def rounds(self) -> Iterable[int]: ...

    def read(self, round: int) -> bytes: ...

    def write(self, round: int, blob: bytes) -> None: ...

    def drop(self, round: int) -> None: ...


class InFolder:
    """Files in a folder of the node's choosing: they survive a restart of everything."""

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
    """Flower's context state: it lives as long as the SuperNode's process and this Flower run."""

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
    """One client's memories of one run."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @staticmethod
    def of(folder: str | None, state: RecordDict, run: str, client: int) -> Memory:
        if not RUN.fullmatch(run):
            raise FedfuseError(f"the server names its run {run!r}: 32 hexadecimal digits are expected")
        return Memory(InState(state, run, client) if folder is None else InFolder(Path(folder), run, client))

    def recall(self, round: int) -> Groups:
        """What was kept in `round`; nothing for round 0."""
        if round == 0:
            return {}
        if round not in self._store.rounds():
            raise FedfuseError(
                f"this node no longer has what the client kept in round {round}: give the node a folder that outlives "
                'it (node config memory-dir="..."), or start the run anew'
            )
        return codec.decode(self._store.read(round))[0]

    def keep(self, round: int, groups: Groups, recalled: int) -> None:
        """File `groups` under `round`. Rounds after `recalled` were refused or undone: their memories go."""
        self._store.write(round, codec.encode(groups, {}))
        settled = sorted(r for r in self._store.rounds() if r <= recalled and r != round)
        kept = {round, *settled[-KEEP:]}
        for other in list(self._store.rounds()):
            if other not in kept:
                self._store.drop(other)
