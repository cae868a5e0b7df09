"""Every algorithm on another device gives the CPU's result within rounding, and sends nothing there but batches."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from fedfuse import devices
from fedfuse.types import FedfuseError
from tests.command_line import ENOUGH, ROOT, CommandLine, environment


def test_every_algorithm_and_every_distiller_gives_the_cpus_result() -> None:
    """In a process of its own: a device that is written in Python is registered for good."""
    process = subprocess.run(
        [sys.executable, "-m", "tests.devices.on_pretend"],
        capture_output=True, text=True, timeout=ENOUGH, cwd=ROOT, env=environment({}), check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    results = json.loads(process.stdout)
    assert len(results) > 35
    failed = {name: text for name, text in results.items() if text}
    assert not failed, f"{len(failed)} of {len(results)} failed: {list(failed)}\n{next(iter(failed.values()))}"


def test_auto_is_what_there_is() -> None:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    assert devices.resolve("auto") == (accelerator or torch.device("cpu"))
    assert devices.resolve("cpu") == torch.device("cpu")
    assert devices.resolve(torch.device("cpu")) == torch.device("cpu")


@pytest.mark.parametrize("name", ["cuda:9", "gpu", "", "cpu:", "meta"])
def test_a_device_that_there_is_not_is_refused_before_training(cli: CommandLine, name: str) -> None:
    with pytest.raises(FedfuseError, match="choose one of auto, cpu"):
        devices.resolve(name)
    result = cli.here("check", "digits", "--set", f'run.device="{name}"')
    assert result.code == 2
    assert "choose one of auto, cpu" in result.err
    assert result.err.count("\n") == 1


def test_workers_take_turns_on_several_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 3)
    assert [devices.spread(torch.device("cuda"), n).index for n in range(5)] == [0, 1, 2, 0, 1]
    assert devices.spread(torch.device("cuda:1"), 5) == torch.device("cuda:1")
    assert devices.spread(torch.device("cpu"), 5) == torch.device("cpu")
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    assert devices.spread(torch.device("cuda"), 5) == torch.device("cuda")
