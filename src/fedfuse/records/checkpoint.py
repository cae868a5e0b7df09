"""Checkpoints: write each atomically, verify its checksum when reading it, and keep the last three.

A file's name contains its round and the SHA-256 of its bytes. So a single rename publishes the content together with
its checksum, and any safetensors reader can open the file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedfuse import codec
from fedfuse.files import write_whole
from fedfuse.records.record import RoundRecord
from fedfuse.types import DamagedError, FedfuseError, Groups, ServerState, Snapshot

KEEP = 3
NAME = re.compile(r"round-(\d{6})-([0-9a-f]{64})\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    server: ServerState
    clients: Mapping[int, Groups]  # each client's memory
    record: RoundRecord  # of the last finished round
    run: str  # the fingerprint of its run
    lines: Sequence[str] = ()  # a hash of each line of the records before that round


def save(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write this checkpoint, delete all but the newest `KEEP`, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    header = {"record": checkpoint.record.line(), "run": checkpoint.run, "lines": list(checkpoint.lines)}
    blob = codec.encode_state(checkpoint.server, checkpoint.clients, header)
    path = folder / f"round-{checkpoint.server.round:06d}-{hashlib.sha256(blob).hexdigest()}.safetensors"
    write_whole(path, blob)
    for old in _newest_first(folder)[KEEP:]:
        old.unlink()
    return path


def latest(folder: Path, run: str) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest intact checkpoint, or None, and a message for each damaged one.

    Damaged files are renamed to `*.damaged`. A checkpoint of a run with another fingerprint is an error.
    """
    problems: list[str] = []
    for leftover in folder.glob(".*.tmp"):  # left by a crash during a write
        leftover.unlink()
    for path in _newest_first(folder):
        try:
            checkpoint = _read(path)
        except FedfuseError as error:
            aside = path.with_name(path.name + ".damaged")
            path.rename(aside)
            problems.append(f"{error}; renamed to {aside.name}")
            continue
        if checkpoint.run != run:
            raise DamagedError(
                f"{path}: is the checkpoint of another run, with other settings, data or versions: "
                "restore this run's own, or start over with another --out"
            )
        return checkpoint, problems
    return None, problems


@dataclass(frozen=True)
class Summary:
    """What the header of a checkpoint says of its run."""

    round: int
    run: str
    lines: Sequence[str]
    record: str  # the line of the last round


def summary(folder: Path) -> Summary | None:
    """Return the summary of the newest checkpoint, from its header alone. None if no header can be read."""
    for path in _newest_first(folder):
        try:
            header = codec.read_header(path)
            lines = [str(line) for line in header["lines"]]
            return Summary(int(header["state"]["round"]), str(header["run"]), lines, str(header["record"]))
        except (FedfuseError, KeyError, TypeError, ValueError):
            continue
    return None


def model(folder: Path, arch: str) -> Snapshot | None:
    """Return the server's model of this architecture in the newest intact checkpoint, if there is one."""
    for path in _newest_first(folder):
        try:
            models = _read(path).server.models.values()
        except FedfuseError:
            continue
        return next((model for model in models if model.arch == arch), None)
    return None


def _newest_first(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if NAME.fullmatch(p.name)), reverse=True)


def _read(path: Path) -> Checkpoint:
    match = NAME.fullmatch(path.name)
    assert match is not None
    blob = path.read_bytes()
    if hashlib.sha256(blob).hexdigest() != match[2]:
        raise FedfuseError(f"{path.name}: its SHA-256 does not match its name")
    server, clients, header = codec.decode_state(blob)
    try:
        return Checkpoint(server, clients, RoundRecord.parse(header["record"]), header["run"], header["lines"])
    except (KeyError, TypeError) as error:
        raise FedfuseError(f"{path.name}: its header lacks {error}: another version wrote it") from error
