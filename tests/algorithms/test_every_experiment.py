"""Every algorithm runs on every built-in experiment as it stands. Data that is not on this machine has stand-ins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedfuse import models
from fedfuse.algorithms import ALGORITHMS
from fedfuse.config.experiment import builtin, load
from fedfuse.data.sources import SOURCES
from fedfuse.data.sources.location import Location
from fedfuse.data.sources.source import Rows, Source
from fedfuse.data.texts.store import Texts
from fedfuse.records import events
from fedfuse.runs import setup as runs_setup
from fedfuse.runs.run import run
from fedfuse.runs.setup import check_setup, load_federation, set_up
from fedfuse.types import FedfuseError
from tests.command_line import CommandLine
from tests.data.texts.small_texts import sentences

# What cannot be, and what the refusal says; everything else must pass.
OF_TEXTS = {
    "scaffold": "steps, and those of adam are not sums of gradients",  # its control variates are mean gradients
    "fedma": "cannot match bag",  # it has a rule for dense and convolutional layers, none for embeddings
    "fedgkt": "bag:256 reads texts",  # its server reads the clients' features, Fed-ET's server reads the texts
}
NO_CHAIN = {"fedma": "it matches nets that are one chain"}
BATCH_NORM = {"fedma": "no rule for averaging a BatchNorm2d"}
REFUSED: dict[str, dict[str, str]] = {
    "ag-news": OF_TEXTS, "sst2": OF_TEXTS, "sent140": OF_TEXTS,
    "cifar10": BATCH_NORM, "cifar100": BATCH_NORM, "cifar10-step": NO_CHAIN, "fashion-mnist": NO_CHAIN,
    "cifar10-fed-et": {"fedma": "neurons of one architecture", "fedgkt": "architectures with the same shape"},
}  # fmt: skip


def images(classes: int, shape: tuple[int, int, int], examples: int = 2000) -> Callable[..., Source]:
    def make(location: Location) -> Source:
        x = torch.randint(256, (examples, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        rows: Rows = (x, torch.arange(examples) % classes, {})
        return Source.of(rows, rows, tuple(map(str, range(classes))))

    return make


def texts(classes: int) -> Callable[..., Source]:
    def make(location: Location) -> Source:
        words = sentences(1200)[0]
        users = {"user": torch.arange(len(words)) % 40}
        rows: Rows = (Texts.of([words], "stand-in"), torch.arange(len(words)) % classes, users)
        return Source.of(rows, rows, tuple(map(str, range(classes))))

    return make


STAND_INS = {
    "cifar10": images(10, (3, 32, 32)), "cifar100": images(100, (3, 32, 32), 4000),
    "tiny-imagenet": images(200, (3, 32, 32)), "fashion-mnist": images(10, (1, 28, 28)),
    "ag-news": texts(4), "sst2": texts(2), "sent140": texts(2),
}  # fmt: skip


@pytest.mark.parametrize("name", builtin())
def test_every_algorithm_fits_every_experiment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for source, stand_in in STAND_INS.items():
        monkeypatch.setitem(SOURCES, source, stand_in)  # type: ignore[arg-type]
    tried: dict[tuple[str, object], None] = {}  # a net is tried once for all algorithms

    def check_once(arch: str, **inputs: Any) -> None:
        if (arch, inputs["shape"]) not in tried:
            tried[arch, inputs["shape"]] = models.check(arch, **inputs)

    monkeypatch.setattr(runs_setup, "models", SimpleNamespace(check=check_once))
    # The stand-ins are smaller than the data: a client may have fewer examples.
    small = {"partition.min_size": 1} if load(name).partition.scheme in ("dirichlet", "column") else {}
    small = {"partition.minor": 2} if load(name).partition.scheme == "step" else small
    settings = {**small, **({"data.pool.size": 400} if name == "cifar10-step" else {})}
    federation = load_federation(load(name, settings))
    refusals = {}
    for algorithm in ALGORITHMS:
        try:
            check_setup(set_up(load(name, {**settings, "algorithm.name": algorithm}), federation))
        except FedfuseError as error:
            refusals[algorithm] = str(error)
    expected = REFUSED.get(name, {})
    assert refusals.keys() == expected.keys(), refusals
    for algorithm, message in refusals.items():
        assert expected[algorithm] in message


SHORT = {"local.epochs": 1, "run.rounds": 1, "run.fraction": 0.2, "run.workers": 1}


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_every_algorithm_runs(name: str, tmp_path: Path) -> None:
    data = {"data.examples": 400, "data.shape": [1, 8, 8], "data.pool.size": 100} if name == "synthetic" else {}
    federation = load_federation(load(name, {**SHORT, **data}))
    for algorithm in ALGORITHMS:
        steps = {"algorithm.steps": 20} if algorithm == "feddf" else {}
        experiment = load(name, {**SHORT, **data, "algorithm.name": algorithm, **steps})
        assert len(run(experiment, tmp_path / algorithm, federation=federation).history) == 1


def test_a_schedule_that_nobody_set_is_fitted_to_the_pool_and_a_line_says_so(tmp_path: Path, cli: CommandLine) -> None:
    line = "fedbe: to fit a pool of 259 images, algorithm.cycle = 1, not 25; algorithm.swa_start = 18, not 250"
    short = ("-r", "1", "--set", "local.epochs=1", "--set", "run.fraction=0.2", "--set", "algorithm.samples=1")
    done = cli.here("run", "digits", "-a", "fedbe", *short, "--no-report", "--out", str(tmp_path / "run"))
    assert line in " ".join(done.text.split())
    assert line in [event.text for event in events.read(tmp_path / "run" / "events.jsonl")]
    stored = load(tmp_path / "run" / "experiment.toml")
    assert (stored.algorithm.settings["swa_start"], stored.algorithm.settings["cycle"]) == (18, 1)
    assert line in " ".join(cli.here("check", "digits", "-a", "fedbe").text.split())


@pytest.mark.parametrize(
    ("algorithm", "settings", "message"),
    [
        ("fedbe", {"algorithm.swa_start": 250}, "lower algorithm.swa_start or algorithm.cycle, raise algorithm.epochs"),
        ("feddf", {"algorithm.batch_size": 300}, "one batch of 300: give it more, or lower algorithm.batch_size"),
        ("feddf", {"algorithm.distiller": {"name": "adam", "batch_size": 300}}, "less than one batch of 300"),
        ("one-shot", {"run.rounds": 3}, "set run.rounds = 1"),
        ("feddf", {"algorithm.steps": -3}, r"algorithm\.steps: AdamCosine\(steps=-3\): steps must be positive"),
    ],
)  # fmt: skip
def test_what_was_set_is_an_error(algorithm: str, settings: dict[str, object], message: str) -> None:
    experiment = load("digits", {"algorithm.name": algorithm, **settings})
    with pytest.raises(FedfuseError, match=message):
        check_setup(set_up(experiment, load_federation(experiment)))


def test_a_batch_that_nobody_set_is_capped() -> None:
    experiment = load("digits", {"data.pool.size": 50, "algorithm.name": "feddf", "algorithm.steps": 10})
    federation = load_federation(experiment)
    setup = set_up(experiment, federation)
    check_setup(setup)
    assert setup.notes == ("feddf: to fit a pool of 50 images, algorithm.batch_size = 50, not 128",)
    again = experiment.with_settings({"run.seed": 0})  # remembers what was set
    assert set_up(again, federation).experiment == setup.experiment
    assert again.with_settings({"algorithm.name": "one-shot"}).states("run.rounds") is False
    assert set_up(load("digits", {"algorithm.name": "feddf"}), federation).notes == setup.notes
