"""A round's memory does not grow with its clients: hundreds of them within a tenth of ten."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.command_line import ENOUGH, ROOT


def test_many_clients_take_the_memory_of_ten(tmp_path: Path) -> None:
    # 2 MB a model: to hold 30 of them at once would already be seen. Workers first: their server needs less memory.
    process = subprocess.run(
        [sys.executable, "-m", "tests.invariant.peak", tmp_path, "2:10", "2:100", "1:10", "1:300"],
        capture_output=True,
        text=True,
        timeout=ENOUGH,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.returncode == 0, process.stderr
    few, many, few_here, many_here = map(int, process.stdout.split())
    assert many <= 1.1 * few, f"{few} kB with 10 clients in workers, {many} kB with 100"
    assert many_here <= 1.1 * few_here, f"{few_here} kB with 10 clients in this process, {many_here} kB with 300"
