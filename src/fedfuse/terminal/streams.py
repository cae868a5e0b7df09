"""Standard streams and signals, whatever the process was started with."""

from __future__ import annotations

import codecs
import io
import os
import signal
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

ASCII = {"·": "-", "×": "x", "…": "...", "–": "-", "—": "-", "→": "->", "±": "+-", "█": "#"}  # noqa: RUF001
STOPPED = (
    "stopped; every finished round is on disk: "
    "continue `run` and `flower up` with --resume, and other commands by repeating them"
)
ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def prepare() -> None:
    """Make it safe to print: closed streams go nowhere, and characters that an encoding lacks are replaced."""
    _occupy()
    codecs.register_error("fedfuse", _replacement)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="fedfuse")


def _occupy() -> None:
    """Open the null device for each closed standard stream, or the next file that is opened would take its place."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number


def _replacement(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = []
    for letter in error.object[error.start : error.end]:
        plain = ASCII.get(letter) or unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
        letters.append(plain or "?")
    return "".join(letters), error.end


def stop_like_ctrl_c() -> None:
    """Treat SIGTERM and SIGHUP like Ctrl-C. A signal that is ignored, as SIGHUP by nohup, stays so."""
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            with suppress(ValueError):  # not in the main thread
                signal.signal(number, _interrupt)


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Exit at once on a signal inside the block. Use it for imports, in which nothing can be lost.

    Libraries catch a KeyboardInterrupt that comes while they are imported, and fail later.
    """
    before = {}
    for number in (signal.SIGINT, *ENDING):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler, _interrupt):
            with suppress(ValueError):  # not in the main thread
                before[number] = signal.signal(number, _leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    with suppress(OSError):
        os.write(2, f"{STOPPED}\n".encode())
    os._exit(128 + number)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def say_stopped(stop: KeyboardInterrupt) -> int:
    """Print that every finished round is on disk, and return the exit code: 128 and the signal's number."""
    with suppress(OSError):  # the terminal may be what is gone
        print(STOPPED, file=sys.stderr)
    name = str(stop)
    return 128 + (signal.Signals[name] if name in signal.Signals.__members__ else signal.SIGINT)
