"""Experiments of Python objects, as in a notebook: arrays, functions that make nets, algorithms as values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedfuse
from fedfuse.algorithms import fedavg, feddf
from fedfuse.config.experiment import Experiment
from fedfuse.engines import InProcess, InThreads, Workers
from fedfuse.flower import server_app
from fedfuse.fusion import SGD, MeanProbs
from fedfuse.local import CrossEntropy, Training
from fedfuse.runs.engine import local_engine
from fedfuse.runs.setup import load_federation
from fedfuse.testing import all_bits
from fedfuse.types import FedfuseError
from tests.doubles import blobs, normed


def arrays(rows: int = 120, seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    made = blobs(rows, seed)
    return made.x.numpy(), made.y.numpy()


def experiment(**sections: Any) -> Experiment:
    return Experiment(
        **{
            "data": (arrays(), arrays(60, 1)),
            "partition": {"clients": 3},
            "models": "mlp:8",
            "local": {"epochs": 1, "batch_size": 16},
            "run": {"rounds": 2},
            **sections,
        }
    )


def small(classes: int, shape: tuple[int, ...]) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 8), nn.ReLU(), nn.Linear(8, classes))


def engine_of(made: Experiment, path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The kind of engine that a run would have, on four cores."""
    with monkeypatch.context() as patched:
        patched.setattr("fedfuse.runs.engine.cores", lambda: 4)
        patched.setattr("fedfuse.runs.engine.Workers", lambda *arguments: Workers)
        engine, _ = local_engine(made, load_federation(made), path)
    if engine is Workers:
        return Workers
    engine.close()
    return type(engine)


def test_arrays_are_kept_by_content(tmp_path: Path) -> None:
    first, again, other = experiment(), experiment(), experiment(data=(arrays(seed=5), arrays(60, 1)))
    assert first.data.source == again.data.source != other.data.source
    federation = load_federation(first)
    assert sum(federation.sizes) + len(federation.validation) == 120
    assert len(federation.test) == 60
    # As with a file, a run can be resumed, and its file is enough to run it again.
    whole = fedfuse.run(first, tmp_path / "run")
    resumed = fedfuse.run(again, tmp_path / "run", resume=True)
    stated = fedfuse.run(fedfuse.load(tmp_path / "run" / "experiment.toml"), tmp_path / "again")
    assert all_bits(whole.models) == all_bits(resumed.models) == all_bits(stated.models)


def test_tensors_images_and_pools_are_data_too(tmp_path: Path) -> None:
    x, y = torch.randint(256, (90, 8, 8), dtype=torch.uint8), torch.arange(90) % 3
    made = experiment(
        data={"source": ((x, y), (x[:30], y[:30])), "pool": x[:64]},
        algorithm=feddf(steps=4, batch_size=16, probe=10),
        run={"rounds": 1, "workers": 1},
    )
    federation = load_federation(made)
    assert federation.train.shape == (1, 8, 8)
    assert federation.pool is not None
    assert len(federation.pool) == 64
    assert fedfuse.run(made, tmp_path).final.facts.teachers == 3


def test_arrays_that_are_gone_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = experiment()
    monkeypatch.setenv("FEDFUSE_CACHE", str(tmp_path))
    with pytest.raises(FedfuseError, match=r"arrays:[0-9a-f]{32}.*pass them again"):
        fedfuse.check(made)


@pytest.mark.parametrize(
    "value",
    [
        feddf(steps=200),
        feddf(over=fedavg(weights="uniform"), distiller=SGD(steps=3), target=MeanProbs(sharpen=2.0)),
        fedavg(),
    ],
)
def test_an_algorithm_of_the_papers_is_stated_by_the_call_that_made_it(
    value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = experiment(algorithm=value)
    assert made.algorithm.name == value.name
    assert Experiment(**made.resolved()).algorithm.build() == value
    assert made.local_objects == []
    assert engine_of(made, tmp_path, monkeypatch) is Workers


def test_an_algorithm_of_other_parts_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Doubled:
        def __call__(self, net: nn.Module, x: Any, y: Any, local: Any) -> Any:
            return 2 * CrossEntropy()(net, x, y, local)

    own = replace(fedavg(), name="doubled", local=Training((Doubled(),)))
    made = experiment(algorithm=own)
    assert made.algorithm.build() is own
    assert engine_of(made, tmp_path, monkeypatch) is InThreads
    run = fedfuse.run(made, tmp_path / "one")
    plain = fedfuse.run(experiment(local={"epochs": 1, "batch_size": 16, "lr": 0.2}), tmp_path / "two")
    for name, tensor in run.models["mlp:8"].params.items():
        torch.testing.assert_close(tensor, plain.models["mlp:8"].params[name])


def test_a_function_at_the_top_of_a_module_has_a_name() -> None:
    made = experiment(models=normed)
    assert made.models.clients == "tests.doubles:normed"
    assert made.local_objects == []
    both = experiment(models={"clients": {"a": normed, "b": small}, "server": "mlp:16"})
    assert dict(both.models.weights) == {"tests.doubles:normed": 1.0, f"{__name__}:small": 1.0}


def test_a_function_without_a_name_runs_here_and_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = {"epochs": 10, "batch_size": 16}
    made = experiment(models=lambda classes, shape: small(classes, shape), local=local)
    assert engine_of(made, tmp_path, monkeypatch) is InThreads
    assert engine_of(made.with_settings({"run.workers": 1}), tmp_path, monkeypatch) is InProcess
    here = fedfuse.run(made, tmp_path / "here")
    assert here.final.test_accuracy > 0.5  # chance is a third
    for refused in (
        lambda: fedfuse.run(made, tmp_path / "here", resume=True),
        lambda: fedfuse.run(made.with_settings({"run.workers": 2}), tmp_path / "workers"),
        lambda: server_app(made),
    ):
        with pytest.raises(FedfuseError, match=r"cannot import python:client.*top level of a module"):
            refused()
    assert not (tmp_path / "workers" / "rounds.jsonl").exists()


def test_another_process_says_what_it_lacks() -> None:
    text = experiment(models=lambda classes, shape: small(classes, shape)).resolved()
    text["models"]["clients"] = "python:client-999"
    with pytest.raises(FedfuseError, match="Python object of the process that began this run"):
        fedfuse.check(Experiment(**text))


def test_the_algorithm_is_built_once_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    section = type(experiment().algorithm)
    build = section.build
    monkeypatch.setattr(section, "build", lambda self: calls.append(self) or build(self))
    fedfuse.run(experiment(run={"rounds": 1, "workers": 1}), tmp_path)
    assert len(calls) == 1


def test_the_same_function_defined_again_keeps_its_name_and_its_bits(tmp_path: Path) -> None:
    def made(width: int) -> Experiment:
        return experiment(
            models=lambda classes, shape: nn.Sequential(
                nn.Linear(shape[0], width), nn.ReLU(), nn.Linear(width, classes)
            ),
            run={"rounds": 1, "workers": 1},
        )

    first, again, wider = made(6), made(6), made(7)
    assert first.models.clients == again.models.clients != wider.models.clients
    runs = [fedfuse.run(each, tmp_path / str(number)) for number, each in enumerate((first, again))]
    assert all_bits(runs[0].models) == all_bits(runs[1].models)


class FailsInTraining(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            raise ValueError("only for inference")
        return super().forward(x)


def fails_in_training(classes: int, shape: tuple[int, ...]) -> nn.Module:
    return FailsInTraining(shape[0], classes)


@pytest.mark.parametrize("clients", [1, 3])
def test_a_net_that_no_client_can_train_ends_the_run_with_its_error(clients: int, tmp_path: Path) -> None:
    made = experiment(models=fails_in_training, partition={"clients": clients}, run={"rounds": 2, "workers": 1})
    with pytest.raises(FedfuseError, match=r"round 1: every client .*ValueError: only for inference"):
        fedfuse.run(made, tmp_path / "run")
    assert not (tmp_path / "run" / "rounds.jsonl").exists() or not (tmp_path / "run" / "rounds.jsonl").read_text()


def test_one_client_that_fails_does_not_end_a_run_of_many(tmp_path: Path) -> None:
    made = experiment(models=fails_in_training, run={"rounds": 1, "workers": 1, "fraction": 0.3})
    assert fedfuse.run(made, tmp_path / "run").final.note is not None
