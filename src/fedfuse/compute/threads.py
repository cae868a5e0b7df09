"""The number of available cores, and the number of threads that torch computes with."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import torch

from fedfuse.types import FedfuseError

ROOT = Path("/")


def cores(root: Path = ROOT) -> int:
    """Return the number of cores that this process may use: those it may run on, and no more than its quota of time.

    A container may have all cores of its host and half a core's time: then this is 1. root: for tests.
    """
    here = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota = cpu_quota(root)
    return here if quota is None else min(here, max(1, math.ceil(quota)))


def cpu_quota(root: Path = ROOT) -> float | None:
    """Return how many cores' time the control groups of this process allow (Linux; v2 and v1), None without a limit.

    A group is limited by every group that contains it, so the least quota on the way up counts. In a container, the
    path may be the host's while its files are mounted at the top: groups without files are passed over.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return None
    quotas = []
    for line in lines:  # `0::/path` of version 2, `1:cpu,cpuacct:/path` of version 1
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        mounts = (f"sys/fs/cgroup/{controllers}", "sys/fs/cgroup/cpu") if controllers else ("sys/fs/cgroup",)
        group = PurePosixPath("/", path).relative_to("/")
        for mount in mounts:
            quotas += [_quota(root / mount / each) for each in (group, *group.parents)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota(group: Path) -> float | None:
    """Return the quota of one group, in cores; None if it has none."""
    try:
        if (file := group / "cpu.max").is_file():
            quota, period = file.read_text(encoding="utf-8").split()
        else:
            quota, period = ((group / f"cpu.cfs_{name}_us").read_text(encoding="utf-8") for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):  # no such group, or `max`: no limit
        return None


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch compute with `count` threads. How sums are split, and so their bits, depends on this number."""
    if count < 1:
        raise FedfuseError(f"threads = {count}: give at least 1")
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
