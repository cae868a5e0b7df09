"""Every algorithm on another device gives the CPU's result within rounding, and sends nothing there but batches."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import fedfuse
from fedfuse.algorithms import fedavg
from fedfuse.compute import devices
from fedfuse.context import Nets
from fedfuse.engines import InProcess
from fedfuse.engines.engine import attempt
from fedfuse.flower.client import Node
from fedfuse.fusion import AdamCosine
from fedfuse.local import Training
from fedfuse.runs import engine as engine_of_runs
from fedfuse.runs.setup import load_federation, set_up
from fedfuse.testing import small_context
from fedfuse.types import Failure, FedfuseError, ServerState, Task
from tests.command_line import ENOUGH, ROOT, CommandLine, environment


def test_every_algorithm_and_every_distiller_gives_the_cpus_result() -> None:
    """In a process of its own: a device that is written in Python is registered for good."""
    process = subprocess.run(
        [sys.executable, "-m", "tests.compute.on_pretend"],
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


def test_as_many_workers_as_the_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    free = {0: 5 * 2**30, 1: 2**20}
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(devices, "free_memory", lambda device: free[device.index])
    # 2 GiB each: two on the first, and at least one on the second.
    assert devices.workers_that_fit(torch.device("cuda")) == 3
    assert devices.workers_that_fit(torch.device("cuda:0")) == 2
    assert devices.workers_that_fit(torch.device("cpu")) is None
    monkeypatch.setattr(devices, "free_memory", lambda device: None)
    assert devices.workers_that_fit(torch.device("cuda")) == 2


@pytest.mark.parametrize(("workers", "expected"), [(0, 2), (1, 1), (3, 3)])
def test_an_accelerator_bounds_the_number_of_workers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, workers: int, expected: int
) -> None:
    """Unless the experiment says how many."""
    made = []
    monkeypatch.setattr(engine_of_runs, "Workers", lambda count, *places: made.append(count) or InProcess())
    monkeypatch.setattr(engine_of_runs, "cores", lambda: 64)
    monkeypatch.setattr(devices, "workers_that_fit", lambda device: 2)
    value = small(run={"workers": workers})
    engine_of_runs.local_engine(value, load_federation(value), tmp_path)
    assert (made or [1]) == [expected]


def test_the_room_for_data_is_a_share_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "free_memory", lambda device: 1000)
    assert devices.room(torch.device("cuda")) == 250
    monkeypatch.setattr(devices, "free_memory", lambda device: None)
    assert devices.room(torch.device("mps")) == devices.UNKNOWN_ROOM


def small(**sections: object) -> fedfuse.Experiment:
    return fedfuse.Experiment(
        data={"source": "synthetic", "examples": 120, "classes": 3, "shape": [4], "pool": {"kind": "split"}},
        partition={"clients": 4}, models="mlp:4", local={"steps": 1, "batch_size": 8},
        algorithm={"name": "feddf", "steps": 1, "batch_size": 8},
        **{"run": {"rounds": 1, "workers": 1}, **sections},
    )  # fmt: skip


def test_flowers_nodes_and_server_take_the_device_of_the_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "resolve", torch.device)  # a run on meta would be refused: its tensors have no values
    value = small(run={"rounds": 1, "device": "meta"})
    assert set_up(value, load_federation(value)).ctx.nets.device.type == "meta"  # as `run` does, the server's loop
    node = Node(value)._setup(value, {"client": 0, "arch": "mlp:4", "upload": "float32", "net": ""}, None)  # type: ignore[arg-type]
    assert node.ctx.nets.device.type == "meta"


def no_memory(*arguments: object, **settings: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nMore lines.")


def test_a_client_without_memory_is_left_out_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Training, "loss", no_memory)
    algorithm = fedavg()
    ctx = small_context(algorithm)
    answer, _ = attempt(algorithm, algorithm.brief(ServerState(0, ctx.initial()), 3, ctx), {}, ctx)
    assert isinstance(answer, Failure)
    assert answer.reason == "ran out of memory in its local work"
    monkeypatch.setattr(Training, "__call__", no_memory)
    ctx = replace(ctx, nets=Nets(3, (4,), device=torch.device("meta")))
    answer, _ = attempt(algorithm, Task(3, 1, None), {}, ctx)
    assert isinstance(answer, Failure)
    assert answer.reason == "ran out of memory in its local work on meta: lower local.batch_size or run.workers"


def test_a_server_without_memory_ends_the_run_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("fedfuse.fusion.descent.Descent._step", no_memory)
    with pytest.raises(
        FedfuseError, match=r"^the device ran out of memory \(CUDA out of memory. .* 2 GiB.\): lower"
    ) as e:
        fedfuse.run(small(), tmp_path / "run")
    assert 'lower batch sizes or run.workers, or set run.device = "cpu"; no round was finished' in str(e.value)
    net = torch.nn.Linear(4, 3)
    with pytest.raises(FedfuseError, match="lower the distiller's batch_size, or choose another device"):
        fedfuse.fuse([net], net, torch.randn(64, 4), distiller=AdamCosine(steps=2, batch_size=8))


def test_workers_take_turns_on_several_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 3)
    assert [devices.spread(torch.device("cuda"), n).index for n in range(5)] == [0, 1, 2, 0, 1]
    assert devices.spread(torch.device("cuda:1"), 5) == torch.device("cuda:1")
    assert devices.spread(torch.device("cpu"), 5) == torch.device("cpu")
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    assert devices.spread(torch.device("cuda"), 5) == torch.device("cuda")
