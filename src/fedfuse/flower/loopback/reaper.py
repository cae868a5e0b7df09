"""A program of its own: ends process groups when whoever holds the other end of its input is gone, even killed.

Each line of its input is the number of a group that began, or, with a minus, of one that has ended. It is started by
its file name and imports nothing of fedfuse, so that it costs no memory to speak of.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress


def hold(lines: Iterable[str]) -> None:
    """Until there are no more lines; then end the groups that are left."""
    groups: set[int] = set()
    for line in lines:
        number = int(line)
        if number > 0:
            groups.add(number)
        else:
            groups.discard(-number)
    for group in groups:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    hold(sys.stdin)
