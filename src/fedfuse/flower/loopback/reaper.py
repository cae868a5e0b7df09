"""A separate program: ends process groups when the process at the other end of its input ends, even if killed.

Each input line is the number of a group that has started or, with a minus sign, of one that has ended. The program is
started by its file name and imports nothing of fedfuse, so that it uses little memory.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress


def hold(lines: Iterable[str]) -> None:
    """Read lines until the input ends, then end the remaining groups."""
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
