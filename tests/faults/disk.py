"""Kills before every step that changes the disk, and disks that are full at every one of them."""

from __future__ import annotations

import errno
import io
import os
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import fedfuse
from tests.command_line import models_of, rounds_of
from tests.doubles import LINEAR, brief_settings
from tests.faults.tally import LostError, Tally, WrongError

ALGORITHMS = ("fedavgm", "scaffold", "feddf", "ds-fl", "moon", "fedbe")  # the first in the suite, all by hand


def tiny(algorithm: str = "fedavgm", **run: object) -> fedfuse.Experiment:
    """Five rounds, so that old checkpoints are dropped; a fraction of a second."""
    return fedfuse.Experiment(
        data={
            "source": "synthetic", "examples": 120, "classes": 3, "shape": [4], "validation": 0,
            "pool": {"kind": "split", "size": 40},
        },
        partition={"clients": 2},
        models={"clients": LINEAR if algorithm != "moon" else "mlp:4"},  # MOON needs features
        local={"steps": 1, "batch_size": 8},
        algorithm={"name": algorithm, **brief_settings(algorithm)},
        run={"rounds": 5, "workers": 1, **run},
    )  # fmt: skip


class Crash:
    """Counts steps on the disk, and kills this process before one of them.

    `torn`: half of what was to be synced is lost as well, as when the power goes.
    """

    def __init__(self, before: int, *, torn: bool) -> None:
        self.before, self.torn, self.steps = before, torn, 0
        self.synced: dict[int, int] = {}  # how much of a file is on disk for good, by its inode

    def count(self, function: Callable[..., object], descriptor: bool = False) -> Callable[..., object]:
        def counted(*arguments: Any, **named: Any) -> object:
            self.steps += 1
            if self.steps == self.before:
                if self.torn and descriptor:
                    self.tear(arguments[0])
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*arguments, **named)
            if descriptor:
                self.synced[os.fstat(arguments[0]).st_ino] = os.fstat(arguments[0]).st_size
            return result

        return counted

    def tear(self, descriptor: int) -> None:
        file = os.fstat(descriptor)
        if stat.S_ISREG(file.st_mode):
            os.ftruncate(descriptor, (self.synced.get(file.st_ino, 0) + file.st_size) // 2)


def killed_before_step(
    number: int, out: Path, *, torn: bool = False, workers: int = 1, algorithm: str = "fedavgm"
) -> bool:
    """Run in a fork that is killed before its step `number` on the disk; whether it came to that."""
    child = os.fork()
    if child == 0:
        try:
            crash = Crash(number, torn=torn)
            if workers == 1:
                os.fsync = crash.count(os.fsync, descriptor=True)  # type: ignore[assignment]
                # Before another step than a sync, a power cut loses what a kill loses.
                for name in () if torn else ("replace", "unlink", "rename"):
                    setattr(Path, name, crash.count(getattr(Path, name)))
            else:
                os.rename = crash.count(os.rename)  # type: ignore[assignment]
            fedfuse.run(tiny(algorithm, workers=workers), out, resume=True)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def _compare(out: Path, straight: Path, finished: list[dict[str, Any]]) -> None:
    """The resumed run must end as the uninterrupted one, and have kept the rounds that were on record."""
    if rounds_of(out)[: len(finished)] != finished:
        raise LostError("a recorded round changed")
    if models_of(out) != models_of(straight) or rounds_of(out) != rounds_of(straight):
        raise WrongError("the resumed run ends otherwise")
    names = [{path.relative_to(run) for path in run.rglob("*")} for run in (out, straight)]
    if {n for n in names[0] if n.suffix != ".safetensors"} != {n for n in names[1] if n.suffix != ".safetensors"}:
        raise WrongError(f"{names[0] ^ names[1]} is left behind")


def _recorded(out: Path) -> list[dict[str, Any]]:
    """The rounds on record; a torn last line is none."""
    file = out / "rounds.jsonl"
    if not file.exists():
        return []
    whole = file.read_text(errors="replace").rpartition("\n")[0]
    return rounds_of(out) if len(whole) + 1 >= file.stat().st_size else []


def kills(seed: int, amount: int, progress: Callable[[], None]) -> Tally:
    """`kill -9` before each fsync, rename and unlink of a run, and a power cut before each fsync."""
    tally = Tally("kills at file operations")
    for algorithm in ALGORITHMS[:amount]:
        with tempfile.TemporaryDirectory() as folder:
            straight = fedfuse.run(tiny(algorithm), Path(folder) / "straight").path
            for torn in (False, True):
                number = 1
                while killed_before_step(
                    number, out := Path(folder) / f"{torn}-{number}", torn=torn, algorithm=algorithm
                ):
                    with tally.trying(f"{algorithm}, {'power cut' if torn else 'kill'} before step {number}"):
                        finished = [] if torn else _recorded(out)
                        fedfuse.run(tiny(algorithm), out, resume=True)
                        _compare(out, straight, finished)
                    number += 1
                    progress()
    return tally


class FullDisk:
    """Lets a number of steps succeed; from then on nothing can be created or written, and a write stops halfway."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def counted(self, function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: Any, **named: Any) -> object:
            self.step()
            return function(*arguments, **named)

        return call

    def open(self, path: Path, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        if "w" not in mode and "a" not in mode:
            return _OPEN(path, mode, *arguments, **named)
        self.step()
        file = _OPEN(path, mode, *arguments, **named)
        write = file.write

        def half(content: Any) -> int:
            try:
                self.step()
            except OSError:
                write(content[: len(content) // 2])
                file.flush()
                raise
            return int(write(content))

        return _Writer(file, half)

    @contextmanager
    def mounted(self) -> Iterator[None]:
        with (
            mock.patch.object(Path, "open", lambda *a, **k: self.open(*a, **k)),
            mock.patch.object(Path, "mkdir", self.counted(Path.mkdir)),
            mock.patch.object(Path, "replace", self.counted(Path.replace)),
            mock.patch.object(os, "fsync", self.counted(os.fsync)),
        ):
            yield


_OPEN = Path.open


class _Writer:
    """A file whose `write` may fail; all else is the file's own."""

    def __init__(self, file: io.BufferedIOBase, write: Callable[[Any], int]) -> None:
        self._file, self.write = file, write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()


def full_disks(seed: int, amount: int, progress: Callable[[], None]) -> Tally:
    """A disk that is full from each step of a run on; then there is room again."""
    tally = Tally("full disk at every write")
    for algorithm in ALGORITHMS[:amount]:
        with tempfile.TemporaryDirectory() as folder:
            straight = fedfuse.run(tiny(algorithm), Path(folder) / "straight").path
            steps, was_full = 0, True
            while was_full:
                out, disk, was_full = Path(folder) / f"full-{steps}", FullDisk(steps), False
                with tally.trying(f"{algorithm}, full from step {steps + 1}"):
                    try:
                        with disk.mounted():
                            fedfuse.run(tiny(algorithm), out)
                    except fedfuse.FedfuseError as error:
                        was_full = True
                        if "make room" not in str(error):
                            raise WrongError(f"not told as a full disk: {error}") from error
                    else:
                        if disk.left < 0:
                            was_full = True  # a step that the run can do without, such as a warning
                    if was_full:
                        finished = _recorded(out)
                        fedfuse.run(tiny(algorithm), out, resume=True)
                        _compare(out, straight, finished)
                steps += 1
                progress()
    return tally
