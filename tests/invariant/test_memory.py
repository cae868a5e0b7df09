"""A round's memory does not grow with its clients: a thousand within a tenth of ten."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import ENOUGH, ROOT


def peak(clients: int, workers: int, folder: Path) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "tests.invariant.peak", str(clients), str(workers), str(folder)],
        capture_output=True,
        text=True,
        timeout=ENOUGH,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_thousand_clients_take_the_memory_of_ten(workers: int, tmp_path: Path) -> None:
    # 2 MB a model: to hold 30 of them at once would already be seen, a thousand would be 2 GB.
    few, many = peak(10, workers, tmp_path / "few"), peak(1000, workers, tmp_path / "many")
    assert many <= 1.1 * few, f"{few} kB with 10 clients, {many} kB with 1,000"
