"""`--engine flower-simulation`: the bits of one process, over interruption and resumption, and nothing left behind.

Ray opens ports, and not all of them are ours to place: it runs in a network of its own here.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import fedfuse
from fedfuse.flower import simulation
from fedfuse.records import events
from fedfuse.types import FedfuseError
from tests.command_line import ROOT, SMALL, CommandLine, environment, rounds_of
from tests.flower.federations import bits_of
from tests.flower.simulated import FEDAVG, experiment

ENOUGH = 600  # seconds after which the simulations are stuck, on however busy a machine
SOON = 20  # seconds in which a busy machine gets round to ending what was told to end
UNSHARE = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]


def isolated() -> bool:
    """Whether a process may have a network of its own."""
    return bool(shutil.which("unshare")) and subprocess.run([*UNSHARE, "true"], capture_output=True).returncode == 0


in_own_network = pytest.mark.skipif(
    not isolated(), reason="Ray listens on the network, and this system does not let a process have one of its own"
)


def with_timeout(network: str) -> list[int]:
    """The processes that have this network."""
    processes = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if str((place / "ns" / "net").readlink()) == network:
                processes.append(int(place.name))
        except OSError:  # it has ended
            continue
    return processes


@dataclass(frozen=True)
class Simulated:
    """What the simulations said and wrote, and who was still running soon after."""

    folder: Path
    output: str
    code: int
    left: list[int]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulated]:
    folder = tmp_path_factory.mktemp("simulated")
    command = [*UNSHARE, sys.executable, "-m", "tests.flower.simulated", str(folder)]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, env=environment(None), start_new_session=True
        )
    network = own_network(process)
    try:
        process.wait(ENOUGH)
        until = time.monotonic() + SOON
        while (left := with_timeout(network)) and time.monotonic() < until:
            time.sleep(0.2)
        yield Simulated(folder, (folder / "output").read_text(), process.returncode, left)
    finally:
        process.kill()
        for pid in with_timeout(network):
            os.kill(pid, signal.SIGKILL)
        process.wait()


def own_network(process: subprocess.Popen[bytes]) -> str:
    ours = Path("/proc/self/ns/net").readlink()
    while (its := Path(f"/proc/{process.pid}/ns/net").readlink()) == ours:
        time.sleep(0.05)
    return str(its)


@pytest.mark.federation
@in_own_network
def test_the_simulation_gives_the_bits_of_one_process(cli: CommandLine, simulated: Simulated, tmp_path: Path) -> None:
    assert simulated.output.startswith("0 "), simulated.output
    here = tuple("1" if word == "2" and FEDAVG[i - 1] == "--workers" else word for i, word in enumerate(FEDAVG))
    assert cli.here(*here, "--out", tmp_path / "here").code == 0
    assert bits_of(simulated.folder / "fedavg") == bits_of(tmp_path / "here")
    assert rounds_of(simulated.folder / "fedavg") == rounds_of(tmp_path / "here")


@pytest.mark.federation
@in_own_network
def test_ctrl_c_amid_a_clients_work_and_resumption_change_no_bit(simulated: Simulated, tmp_path: Path) -> None:
    """Of SCAFFOLD, whose clients keep their control variates."""
    assert simulated.output.endswith("interrupted\nresumed\n"), simulated.output
    assert simulated.code == 0
    happened = [event.kind for event in events.read(simulated.folder / "scaffold" / "events.jsonl")]
    assert happened == ["begun", "stopped", "resumed", "finished"]
    fedfuse.run(experiment().with_settings({"run.workers": 1}), tmp_path / "here")
    assert bits_of(simulated.folder / "scaffold") == bits_of(tmp_path / "here")
    assert rounds_of(simulated.folder / "scaffold") == rounds_of(tmp_path / "here")


@pytest.mark.federation
@in_own_network
def test_flower_and_ray_say_nothing(simulated: Simulated) -> None:
    first = simulated.output.partition("interrupted")[0]
    assert "round 2/2" in first
    assert not [word for word in ("ray::", "(raylet)", "INFO", "WARN", "flwr", "deprecat") if word in simulated.output]


@pytest.mark.federation
@in_own_network
def test_nothing_is_left_running(simulated: Simulated) -> None:
    assert simulated.left == []


def test_without_ray_it_says_what_to_install(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "find_spec", lambda name: None)
    result = cli.here(*SMALL, "--engine", "flower-simulation", "--out", tmp_path / "run")
    assert result.code == 2
    assert "pip install 'fedfuse[flower-simulation]'" in result.err
    assert not (tmp_path / "run").exists()


def test_a_users_mistake_is_told_before_ray_is_started(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").touch()
    (tmp_path / "rounds.jsonl").write_text("{}\n")
    result = cli.here(*SMALL, "--engine", "flower-simulation", "--out", tmp_path)
    assert result.code == 2
    assert "--resume, or choose another --out" in result.err


def test_clients_share_the_gpus_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert simulation._gpus_per_client("cpu", 4) == 0.0
    monkeypatch.setattr(simulation.devices, "resolve", torch.device)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    assert simulation._gpus_per_client("cuda", 4) == 0.5
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 3)
    assert simulation._gpus_per_client("cuda", 2) == 1.0  # Ray refuses 1.5
    with pytest.raises(FedfuseError, match=r'set run.device = "cuda", and CUDA_VISIBLE_DEVICES=1'):
        simulation._gpus_per_client("cuda:1", 2)


def test_an_engine_that_there_is_not_is_refused(cli: CommandLine) -> None:
    result = cli.here(*SMALL, "--engine", "ray")
    assert result.code == 2
    assert "flower-simulation" in result.err


def test_without_a_cluster_ray_is_on_loopback_and_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    path = os.environ.get("PYTHONPATH")
    with simulation._ray(experiment().with_settings({"run.threads": 2, "run.workers": 3}), 5) as config:
        init = config["init_args"]
        assert (init["address"], init["_node_ip_address"], init["num_cpus"]) == ("local", "127.0.0.1", 6)
        assert config["client_resources"]["num_cpus"] == 2
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
        os.environ["PYTHONPATH"] = "changed"
    assert os.environ.get("PYTHONPATH") == path
    assert "RAY_USAGE_STATS_ENABLED" not in os.environ
    assert not Path(init["_temp_dir"]).exists()


def test_a_cluster_is_used_where_the_user_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with simulation._ray(experiment(), 5) as config:
        init = config["init_args"]
    assert init["address"] == "10.0.0.1:6379"
    assert not {"num_cpus", "_node_ip_address", "_temp_dir"} & set(init)
