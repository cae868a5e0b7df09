"""Clients of several precisions and architectures: every engine gives the same bits, and so does a resumed run."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedfuse
from fedfuse import codec
from fedfuse.engines import Engine, InThreads
from fedfuse.local.uploads import RESIDUAL
from fedfuse.records.stored import StoredRun
from fedfuse.testing import all_bits
from tests.command_line import rounds_of
from tests.doubles import brief_settings
from tests.invariant.test_engines_agree import Stopping

MIXED = {"mlp:8-6:bn:1bit": 1, "mlp:8-6:bn:int8": 1, "mlp:8-6:bn": 1, "mlp:9-5:1bit:keep=none": 1, "mlp:9-5": 1}
NAMES = ["fedavg", "feddf", "fed-et", "scaffold", "moon"]


def experiment(name: str, workers: int, **settings: object) -> fedfuse.Experiment:
    made = fedfuse.Experiment(
        data={"source": "synthetic", "examples": 240, "classes": 3, "shape": [4], "pool": {"size": 64}},
        partition={"scheme": "iid", "clients": 5},
        models={"clients": MIXED, "server": "mlp:12"},
        local={"epochs": 2, "batch_size": 8, "upload": "bfloat16", "error_feedback": True, "upload_of": "difference"},
        algorithm={"name": name, **brief_settings(name)},
        run={"rounds": 3, "fraction": 0.8, "workers": workers},
    )
    return made.with_settings(settings)


@pytest.mark.parametrize("name", NAMES)
def test_this_process_and_workers_give_the_same_bits(name: str, tmp_path: Path) -> None:
    here = fedfuse.run(experiment(name, 1), tmp_path / "here")
    there = fedfuse.run(experiment(name, 2), tmp_path / "there")
    assert all_bits(here.models) == all_bits(there.models)
    assert rounds_of(tmp_path / "here") == rounds_of(tmp_path / "there")
    assert not any(record.rejected or record.note for record in here.history)


def test_threads_give_the_same_bits(tmp_path: Path) -> None:
    class Threads(InThreads):
        def run(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
            self._step_seconds = 1.0  # no client is too small for a thread
            return super().run(*args, **kwargs)  # type: ignore[arg-type]

    def engines(*args: object) -> tuple[Engine, None]:
        return Threads(3), None

    here = fedfuse.run(experiment("moon", 1), tmp_path / "here")
    there = fedfuse.run(experiment("moon", 1), tmp_path / "there", engines=engines)
    assert all_bits(here.models) == all_bits(there.models)


@pytest.mark.parametrize(("name", "workers"), [("fedavg", 1), ("feddf", 2), ("scaffold", 2)])
def test_a_resumed_run_gives_the_same_bits_with_its_residuals(name: str, workers: int, tmp_path: Path) -> None:
    straight = fedfuse.run(experiment(name, 1), tmp_path / "straight")
    made = experiment(name, workers)
    for resume in (False, True):
        with pytest.raises(KeyboardInterrupt):
            fedfuse.run(made, tmp_path / "stopped", resume=resume, display=Stopping())
    resumed = fedfuse.run(made, tmp_path / "stopped", resume=True)
    assert all_bits(resumed.models) == all_bits(straight.models)
    assert rounds_of(tmp_path / "stopped") == rounds_of(tmp_path / "straight")
    # Else nothing would have been resumed: without the residuals, the bits are others.
    forgetful = fedfuse.run(experiment(name, 1, **{"local.error_feedback": False}), tmp_path / "forgetful")
    assert all_bits(forgetful.models) != all_bits(straight.models)


def test_a_residual_stays_with_its_client(tmp_path: Path) -> None:
    """FedDF's released code adds one client's to another. Here a checkpoint has each under its client."""
    fedfuse.run(experiment("fedavg", 1, **{"run.fraction": 1.0}), tmp_path / "run")
    newest = max((tmp_path / "run" / "checkpoint").glob("round-*"))
    _, clients, _ = codec.decode_state(newest.read_bytes())
    assert sorted(clients) == [0, 1, 2, 3, 4]
    uploads = StoredRun.open(tmp_path / "run").federation.uploads  # type: ignore[union-attr]
    sizes = [len(clients[k][RESIDUAL]) for k in range(5)]
    expected = {"1bit, one-bit net": {1, 3}, "int8": {3}, "bfloat16": {3}}
    assert all(size in expected[upload] for size, upload in zip(sizes, uploads, strict=True))
    values = [next(iter(clients[k][RESIDUAL].values())).flatten()[:4].tolist() for k in range(5)]
    assert len({tuple(v) for v in values}) == 5
