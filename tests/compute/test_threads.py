"""Cores follow the quota of control groups, whose files are made up here; threads are restored."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from fedfuse.compute import threads
from fedfuse.types import FedfuseError


def system(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    """A root directory in which this process has these control groups."""
    for name, text in {"proc/self/cgroup": cgroup, **{f"sys/fs/cgroup/{k}": v for k, v in files.items()}}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


V1 = "5:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n"


@pytest.mark.parametrize(
    ("cgroup", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 0.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "150000 100000\n"}, 1.5),  # of the group above
        ("0::/a/b\n", {"a/b/cpu.max": "100000 100000\n", "a/cpu.max": "300000 100000\n"}, 1.0),
        ("0::/host/path\n", {"cpu.max": "200000 100000\n"}, 2.0),  # the host's path, mounted at the top
        (V1, {"cpu,cpuacct/cpu.cfs_quota_us": "250000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, 2.5),
        (V1, {"cpu/docker/abc/cpu.cfs_quota_us": "50000", "cpu/docker/abc/cpu.cfs_period_us": "100000"}, 0.5),
        (V1, {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ("0::/\n", {"cpu.max": "nonsense\n"}, None),
        ("", {}, None),
    ],
)
def test_quota_of_control_groups(
    cgroup: str, files: dict[str, str], quota: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = system(tmp_path, cgroup, files)
    assert threads.cpu_quota(root) == quota
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
    assert threads.cores(root) == {0.5: 1, 1.0: 1, 1.5: 2, 2.0: 2, 2.5: 3, None: 64}[quota]


def test_without_linux_there_are_neither_groups_nor_an_affinity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert threads.cores(tmp_path) == 8


def test_threads_are_those_of_the_caller_again() -> None:
    before = torch.get_num_threads()
    with threads.threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    with pytest.raises(FedfuseError, match="threads = 0: give at least 1"), threads.threads(0):
        pass
