"""The papers' claim in small: on unlike clients, distilling the ensemble beats averaging it."""

from pathlib import Path
from statistics import fmean

import pytest

import fedfuse

ROUNDS, SEEDS = 5, (0, 1)


def mean_accuracy(algorithm: dict[str, object], folder: Path) -> float:
    """Over the rounds and the seeds, on real digits."""
    runs = [
        fedfuse.run(
            fedfuse.load(
                "digits",
                {
                    **{f"algorithm.{key}": value for key, value in algorithm.items()},
                    "run.rounds": ROUNDS,
                    "run.seed": seed,
                    "run.workers": 1,
                },
            ),
            folder / f"{algorithm['name']}-{seed}",
        )
        for seed in SEEDS
    ]
    return fmean(record.test_accuracy for run in runs for record in run.history)


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> float:
    return mean_accuracy({"name": "fedavg"}, tmp_path_factory.mktemp("fedavg"))


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "feddf", "steps": 400, "patience": 400, "every": 50, "probe": 0},
        {"name": "fedbe", "epochs": 150, "lr": 0.01, "swa_start": 50, "augment": "none", "probe": 0},
    ],
    ids=["feddf", "fedbe"],
)
def test_distillation_gains_over_averaging(algorithm: dict[str, object], averaged: float, tmp_path: Path) -> None:
    assert mean_accuracy(algorithm, tmp_path) > averaged + 0.01
