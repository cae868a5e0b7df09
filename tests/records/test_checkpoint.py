"""Checkpoints: whole or not at all, checked when read, three kept; a damaged one costs a round, not the run."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch

from fedfuse.facts import Score
from fedfuse.files import write_whole
from fedfuse.records.checkpoint import Checkpoint, Summary, latest, save, summary
from fedfuse.records.record import RoundRecord
from fedfuse.testing import bits
from fedfuse.types import FedfuseError, ServerState
from tests.doubles import snapshot

RUN = "0" * 64


def at(round: int) -> Checkpoint:
    record = RoundRecord(round, [0], 0.5, 1.0, {"one": Score(0.5, 1.0)}, 1, 1, 4, 4, {"local": 0.1})
    server = ServerState(round, {"one": snapshot(float(round))}, {"velocity/one": {"w": torch.ones(1)}})
    return Checkpoint(server, {3: {"own": {"c": torch.tensor(round)}}}, record, RUN, ["ab"] * (round - 1))


def rounds_in(folder: Path) -> list[int]:
    return sorted(int(p.name.split("-")[1]) for p in folder.glob("round-*.safetensors"))


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    save(tmp_path, at(7))
    checkpoint, damaged = latest(tmp_path, RUN)
    assert checkpoint is not None
    assert damaged == []
    assert checkpoint.record == at(7).record
    assert bits(checkpoint.server.models["one"]) == bits(snapshot(7.0))
    assert checkpoint.server.memory["velocity/one"]["w"].item() == 1.0
    assert checkpoint.clients[3]["own"]["c"].item() == 7


def test_the_last_three_are_kept(tmp_path: Path) -> None:
    for round in range(1, 12):
        save(tmp_path, at(round))
    assert rounds_in(tmp_path) == [9, 10, 11]
    checkpoint, _ = latest(tmp_path, RUN)
    assert checkpoint is not None
    assert checkpoint.server.round == 11


def test_no_folder_is_no_checkpoint(tmp_path: Path) -> None:
    assert latest(tmp_path / "none", RUN) == (None, [])


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def with_a_bit_turned(path: Path) -> None:
    # In the payload of the tensors, where a reader of safetensors would notice nothing.
    blob = bytearray(path.read_bytes())
    blob[-1] ^= 1
    path.write_bytes(bytes(blob))


@pytest.mark.parametrize("damage", [truncated, emptied, with_a_bit_turned])
def test_a_damaged_newest_is_set_aside_and_the_one_before_used(tmp_path: Path, damage: object) -> None:
    for round in (1, 2, 3):
        newest = save(tmp_path, at(round))
    damage(newest)  # type: ignore[operator]
    checkpoint, damaged = latest(tmp_path, RUN)
    assert checkpoint is not None
    assert checkpoint.server.round == 2
    assert len(damaged) == 1
    assert "SHA-256" in damaged[0]
    assert newest.name in damaged[0]
    assert newest.with_name(newest.name + ".damaged").exists()  # kept for whoever wants to look
    assert latest(tmp_path, RUN)[1] == []


def test_two_damaged_ones_leave_the_third(tmp_path: Path) -> None:
    for path in [save(tmp_path, at(round)) for round in (1, 2, 3)][1:]:
        truncated(path)
    checkpoint, damaged = latest(tmp_path, RUN)
    assert checkpoint is not None
    assert (checkpoint.server.round, len(damaged)) == (1, 2)


def test_a_file_whose_name_was_forged_to_fit_is_no_checkpoint(tmp_path: Path) -> None:
    # Its SHA-256 is right, its inside is not: refused like any other.
    import hashlib

    blob = b"nothing"
    (tmp_path / f"round-000001-{hashlib.sha256(blob).hexdigest()}.safetensors").write_bytes(blob)
    checkpoint, damaged = latest(tmp_path, RUN)
    assert checkpoint is None
    assert "not a fedfuse blob" in damaged[0]


def test_what_a_crash_left_half_written_is_cleared_away(tmp_path: Path) -> None:
    newest = save(tmp_path, at(1))
    (tmp_path / f".{newest.name}.tmp").write_bytes(b"half")
    checkpoint, damaged = latest(tmp_path, RUN)
    assert checkpoint is not None
    assert damaged == []
    assert [p.name for p in tmp_path.iterdir()] == [newest.name]


@pytest.mark.parametrize("fails", ["fsync", "open"])
def test_a_write_that_fails_leaves_what_was_there_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    file = tmp_path / "experiment.toml"
    file.write_bytes(b"before")

    def no_space(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(*((os, "fsync") if fails == "fsync" else (Path, "open")), no_space)
        with pytest.raises(FedfuseError, match=r"No space left on device.*make room"):
            write_whole(file, b"after")
    assert file.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [file]


def test_content_is_on_disk_before_its_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rename that outruns its content is the classic way to an empty file after a power cut."""
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (steps.append("fsync"), fsync(fd)))
    monkeypatch.setattr(Path, "replace", lambda self, target: (steps.append("rename"), replace(self, target)))
    write_whole(tmp_path / "file", b"content")
    assert steps == ["fsync", "rename", "fsync"]  # the last one is the folder's


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, at(2))
    with pytest.raises(FedfuseError, match="is the checkpoint of another run"):
        latest(tmp_path, "1" * 64)
    assert path.exists()  # it is not damaged: it is left where it is


def test_the_header_alone_says_which_lines_there_were(tmp_path: Path) -> None:
    assert summary(tmp_path / "none") is None
    save(tmp_path, at(3))
    assert summary(tmp_path) == Summary(3, RUN, ["ab", "ab"], at(3).record.line())
    (tmp_path / f"round-000009-{'0' * 64}.safetensors").write_bytes(b"nothing")
    assert summary(tmp_path) == Summary(3, RUN, ["ab", "ab"], at(3).record.line())
