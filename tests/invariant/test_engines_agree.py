"""One, two or three workers: the same bits. And the bits do not depend on who started the run, or how."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import safetensors.torch
import torch

import fedfuse
from fedfuse.algorithms import ALGORITHMS
from fedfuse.records.record import RoundRecord
from fedfuse.runs.display import Silent
from fedfuse.runs.run import Run
from fedfuse.runs.setup import load_federation
from fedfuse.testing import all_bits
from tests.command_line import SMALL, CommandLine, models_of, rounds_of
from tests.doubles import DROPPING, brief_settings

# Architectures for those that refuse the usual two. FedMA: a cycle of its layers is three rounds. FedGKT: one shape of
# features, and a server's net that it is laid before. Fed-ET: nets that say where their head is.
SUITED: dict[str, str | dict[str, int]] = {
    "fedma": "mlp:6-5",
    "fedgkt": {"mlp:6": 1, "mlp:6-5:bn": 1},
    "fed-et": {"mlp:8": 1, "mlp:6:bn": 1},
}
NAMES = [*ALGORITHMS, "tests.doubles:remembering", "tests.doubles:three_raise"]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`SMALL` by the command line without workers."""
    run = tmp_path_factory.mktemp("reference") / "run"
    result = CommandLine()(*SMALL, "--workers", "1", "--out", run)
    assert result.code == 0, result.text
    return run


@pytest.mark.parametrize("workers", [2, 3])
def test_the_number_of_workers_changes_no_bit(cli: CommandLine, reference: Path, workers: int, tmp_path: Path) -> None:
    result = cli.here(*SMALL, "--workers", str(workers), "--out", tmp_path / "run")
    assert result.code == 0, result.text
    assert models_of(tmp_path / "run") == models_of(reference)
    assert rounds_of(tmp_path / "run") == rounds_of(reference)


def experiment(name: str, workers: int) -> fedfuse.Experiment:
    """Dropout and batch norm in one federation, three of five clients in each of three rounds."""
    settings = brief_settings(name) if name in ALGORITHMS else {}
    return fedfuse.Experiment(
        data={
            "source": "synthetic",
            "examples": 240,
            "classes": 3,
            "shape": [4],
            "pool": {"kind": "split", "size": 64},
        },
        partition={"scheme": "iid", "clients": 5},
        models={"clients": SUITED.get(name, {DROPPING: 1, "mlp:6:bn": 1}), "server": "mlp:12"},
        local={"epochs": 2, "batch_size": 8, "stragglers": True},
        algorithm={"name": name, **settings},
        run={"rounds": 1 if name == "one-shot" else 3, "fraction": 0.6, "workers": workers},
    )


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Each algorithm in this process, uninterrupted. It runs once for all tests that compare with it."""
    return cache(lambda name: fedfuse.run(experiment(name, 1), tmp_path_factory.mktemp("straight") / "run"))


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_gives_the_same_bits_in_this_process_and_in_workers(
    name: str, straight: Callable[[str], Run], tmp_path: Path
) -> None:
    here = straight(name)
    there = fedfuse.run(experiment(name, 2), tmp_path / "there")
    assert all_bits(here.models) == all_bits(there.models)
    assert rounds_of(here.path) == rounds_of(tmp_path / "there")


class Stopping(Silent):
    """Ends the run after its first round, as Ctrl-C would."""

    def round_ends(self, record: RoundRecord) -> None:
        raise KeyboardInterrupt


# In workers those whose clients remember, and the plainest of the others: what is resumed there is client memory.
RESUMED = [(name, 1) for name in NAMES if name != "one-shot"]
RESUMED += [(name, 2) for name in ("fedavg", "feddf", "scaffold", "moon", "ds-fl", "fedgkt", "fedma", NAMES[-2])]
RESUMED += [("decentralised-logits", 2)]


@pytest.mark.parametrize(("name", "workers"), RESUMED)
def test_every_algorithm_resumes_to_the_same_bits(
    name: str, workers: int, straight: Callable[[str], Run], tmp_path: Path
) -> None:
    whole = straight(name)
    made = experiment(name, workers)
    with pytest.raises(KeyboardInterrupt):
        fedfuse.run(made, tmp_path / "stopped", display=Stopping())
    with pytest.raises(KeyboardInterrupt):
        fedfuse.run(made, tmp_path / "stopped", resume=True, display=Stopping())
    resumed = fedfuse.run(made, tmp_path / "stopped", resume=True)
    assert all_bits(resumed.models) == all_bits(whole.models)
    assert rounds_of(tmp_path / "stopped") == rounds_of(whole.path)
    assert [r.round for r in resumed.history] == [1, 2, 3]


def test_python_gives_the_same_bits_as_the_command_line(reference: Path, tmp_path: Path) -> None:
    made = fedfuse.Experiment(
        name="mine",
        data={"source": "digits", "validation": 0.1},
        partition={"scheme": "dirichlet", "clients": 5, "alpha": 0.1, "min_size": 5},
        models={"clients": "mlp:16:bn"},
        local={"epochs": 2, "batch_size": 32, "lr": 0.05},
        run={"rounds": 4, "fraction": 0.6, "workers": 1},
    )
    run = fedfuse.run(made, out=tmp_path / "run")
    assert models_of(run.path) == models_of(reference)
    assert rounds_of(run.path) == rounds_of(reference)
    assert [r.round for r in run.history] == [1, 2, 3, 4]
    assert run.final.test_accuracy == rounds_of(reference)[-1]["test_accuracy"]


def test_the_experiment_that_a_run_wrote_gives_the_same_bits_again(reference: Path, tmp_path: Path) -> None:
    again = fedfuse.run(fedfuse.load(reference / "experiment.toml"), out=tmp_path / "again")
    assert models_of(again.path) == models_of(reference)
    assert (tmp_path / "again" / "experiment.toml").read_text() == (reference / "experiment.toml").read_text()


def test_what_a_run_wrote_says_all_that_decides_its_bits(reference: Path) -> None:
    provenance = tomllib.loads((reference / "experiment.toml").read_text())["provenance"]
    assert {"fedfuse", "torch", "python", "seed", "threads", "data"} <= provenance.keys()
    assert provenance["torch"] == torch.__version__
    assert provenance["data"] == load_federation(fedfuse.load(reference / "experiment.toml")).fingerprint


def test_another_seed_gives_other_bits(reference: Path, tmp_path: Path) -> None:
    # Else the comparisons above would hold for a run that draws nothing.
    other = fedfuse.run(fedfuse.load(reference / "experiment.toml", {"run.seed": 1}), out=tmp_path / "other")
    assert models_of(other.path) != models_of(reference)


def test_a_model_of_a_run_predicts_as_the_run_did(reference: Path) -> None:
    (file,) = (reference / "models").glob("*.safetensors")
    loaded = fedfuse.load_model(file)
    test = load_federation(fedfuse.load(reference / "experiment.toml")).test
    mean, std = (torch.tensor(v).view(1, -1, 1, 1) for v in (loaded.mean, loaded.std))
    with torch.no_grad():
        answers = loaded.net((test.x / 255 - mean) / std).argmax(1)
    assert (loaded.arch, loaded.classes, loaded.shape) == ("mlp:16:bn", 10, (1, 8, 8))
    assert loaded.labels == tuple("0123456789")
    accuracy = (answers == test.y).double().mean().item()
    assert accuracy == pytest.approx(rounds_of(reference)[-1]["test_accuracy"], abs=1e-9)


def test_a_model_of_a_run_opens_with_plain_safetensors(reference: Path) -> None:
    (file,) = (reference / "models").glob("*.safetensors")
    tensors = safetensors.torch.load_file(file)
    own = dict(fedfuse.load_model(file).net.state_dict())
    assert tensors.keys() == own.keys()
    assert all(torch.equal(t, own[name]) for name, t in tensors.items())


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x00\x00\x00\x00\x00\x00\x00{}      "])
def test_what_is_no_model_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_bytes(content)
    with pytest.raises(fedfuse.FedfuseError, match="not a model written by fedfuse"):
        fedfuse.load_model(tmp_path / "m.safetensors")


def test_a_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(fedfuse.FedfuseError, match=r"none\.safetensors"):
        fedfuse.load_model(tmp_path / "none.safetensors")
