"""A round's memory does not grow with its clients: hundreds of them within a tenth of ten."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import ENOUGH, ROOT


@pytest.mark.parametrize(("workers", "clients"), [(1, 300), (2, 100)])
def test_many_clients_take_the_memory_of_ten(workers: int, clients: int, tmp_path: Path) -> None:
    # 2 MB a model: to hold 30 of them at once would already be seen.
    process = subprocess.run(
        [sys.executable, "-m", "tests.invariant.peak", str(workers), str(tmp_path), "10", str(clients)],
        capture_output=True,
        text=True,
        timeout=ENOUGH,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.returncode == 0, process.stderr
    few, many = map(int, process.stdout.split())
    assert many <= 1.1 * few, f"{few} kB with 10 clients, {many} kB with {clients}"
