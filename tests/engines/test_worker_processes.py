"""What the system sees of a worker: the memory that it maps, the signals that reach it, and its priority."""

from __future__ import annotations

import os
import platform
from contextlib import closing
from pathlib import Path

import pytest

from fedfuse.config.experiment import Experiment
from fedfuse.engines import Workers
from fedfuse.runs.setup import load_federation, set_up
from fedfuse.types import Update
from tests.doubles import initial


def page_faults(process: int) -> int:
    """Return the minor page faults of a process so far."""
    after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]
    return int(after_name.split()[7])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc maps each large block anew by default")
def test_the_second_client_of_a_worker_reuses_the_memory_of_the_first(tmp_path: Path) -> None:
    experiment = Experiment(
        data={"source": "synthetic", "examples": 800, "validation": 0},
        partition={"scheme": "iid", "clients": 2},
        models={"clients": "convnet"},
        local={"epochs": 1, "batch_size": 32},
        algorithm={"name": "fedavg"},
    )
    federation = load_federation(experiment)
    setup = set_up(experiment, federation)
    federation.save(tmp_path / "scratch")
    (tmp_path / "experiment.toml").write_text(experiment.toml())
    ctx, algorithm = setup.ctx.at(1), setup.algorithm
    server, faults = initial(ctx), []
    with closing(Workers(1, tmp_path / "experiment.toml", tmp_path / "scratch")) as workers:
        workers._workers[0].stop()  # one that another test used may have freed large blocks; a task starts a new one
        for client in range(2):
            answer, *_ = workers.run(algorithm, [algorithm.brief(server, client, ctx)], ctx)
            assert isinstance(answer, Update)
            faults.append(page_faults(workers._workers[0]._process.pid))
    assert faults[1] - faults[0] < 5_000  # 18,000 if every large tensor is mapped anew


def test_a_worker_has_a_process_group_of_its_own_in_the_session_of_the_run() -> None:
    """So Ctrl-C does not reach it, and `nice` before a run holds for it, where sessions are scheduled apart."""
    with closing(Workers(1, Path("unread.toml"), Path("unread"))) as workers:
        process = workers._workers[0]._process.pid
        assert os.getpgid(process) == process != os.getpgid(0)
        assert os.getsid(process) == os.getsid(0)
