"""Run a blocking call with a timeout."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

from fedfuse.types import FedfuseError

T = TypeVar("T")


def with_timeout(seconds: float, work: Callable[[], T]) -> T:
    """Return or raise what `work` does. After `seconds`, raise a FedfuseError and leave `work` in its daemon thread."""
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
            f"the SuperLink did not answer within {seconds:g} s; every finished round is saved: continue with "
            "--resume once it is back"
        ) from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # mypy cannot see that there is a result without an error
