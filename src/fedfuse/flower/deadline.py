"""Work that another machine may keep from ever ending, with an end."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

from fedfuse.types import FedfuseError

T = TypeVar("T")


def within(seconds: float, work: Callable[[], T]) -> T:
    """What `work` gives, or raises. After `seconds` it is left to itself, in a thread that holds up nobody."""
    outcome: SimpleQueue[tuple[T, None] | tuple[None, BaseException]] = SimpleQueue()

    def attempt() -> None:
        try:
            outcome.put((work(), None))
        except BaseException as error:
            outcome.put((None, error))

    Thread(target=attempt, daemon=True, name="fedfuse-within").start()
    try:
        result, error = outcome.get(timeout=seconds)
    except Empty:
        raise FedfuseError(
            f"the SuperLink did not answer within {seconds:g} s; every finished round is kept: go on with --resume "
            "once it is back"
        ) from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # without an error there is one, which mypy cannot see in the pair
