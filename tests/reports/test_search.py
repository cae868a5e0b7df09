"""What a report says of a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedfuse.reports.elements import Table, Words, figures_and_tables
from fedfuse.reports.figure import Bars, Parallel
from fedfuse.reports.page import report_of
from fedfuse.sweeps.results import Sweep, Trial, write
from fedfuse.sweeps.space import Choice, Range
from fedfuse.types import FedfuseError
from tests.reports.written import a_run


def a_trial(number: int, rate: float, optimizer: str, validation: float | None, state: str = "complete") -> Trial:
    """Its test accuracy is the better, the worse its validation accuracy: who chose by it would choose wrongly."""
    path = f"trial-{number:04d}"
    test = None if validation is None else 1 - validation
    parameters = {"local.lr": rate, "local.optimizer": optimizer}
    return Trial(number, parameters, state, validation, test, 2, path, (path,))  # type: ignore[arg-type]


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    trials = (
        a_trial(0, 0.01, "sgd", 0.6),
        a_trial(1, 0.1, "adam", 0.8),
        a_trial(2, 1.0, "adam", 0.4, "pruned"),
        a_trial(3, 1.0, "sgd", 0.5),
    )
    space = {"local.lr": Range(0.01, 1.0, log=True), "local.optimizer": Choice(("sgd", "adam"))}
    for trial in trials:
        assert trial.test is not None
        a_run(tmp_path / trial.path, [0.1, trial.test], algorithm={"name": "fedavg", "mark": trial.number})
    write(Sweep(tmp_path, "animals", 2, 1, space, trials, {"local.lr": 0.25, "local.optimizer": 0.75}))
    return tmp_path


def test_the_best_trial_is_that_of_validation(sweep: Path) -> None:
    report = report_of([sweep])
    first = report.sections[0]
    result = next(b.text for b in first.blocks if isinstance(b, Words))
    assert report.title == "animals: a sweep"
    assert result.startswith(
        "4 trials: 3 complete, 1 pruned. The best is trial 1 with local.lr = 0.1, local.optimizer = adam: "
    )
    assert "80.00 % on validation data. Test data was not used for the choice." in result
    assert [(card.title, card.value) for card in first.cards] == [
        ("validation accuracy", "80.00 %"),
        ("its test accuracy", "20.00 %"),
        ("trials", "4"),
    ]
    assert report.decision == (
        "Choose trial 1: 80.00 % on validation data, 20.00 points (one seed: chance is not ruled out) above the "
        "second, trial 0. A run of it sends 1.6 kB and takes 6.0 s."
    )
    assert "verdict" not in {s.key for s in report.sections}  # it would name the highest on test data


def test_trials_are_lines_and_their_settings_have_shares(sweep: Path) -> None:
    blocks = {b.key: b for b in figures_and_tables(report_of([sweep]).sections)}
    parallel, shares, table = blocks["parallel"], blocks["importance"], blocks["trials"]
    assert isinstance(parallel, Parallel)
    assert [axis.name for axis in parallel.axes] == ["local.lr", "local.optimizer", "validation / %"]
    assert (parallel.axes[0].log, list(parallel.axes[0].values)) == (True, [0.1, 0.01, 1.0])  # best first
    assert parallel.axes[1].ticks == {0.0: "sgd", 1.0: "adam"}
    assert isinstance(shares, Bars)
    assert (list(shares.categories), list(shares.bars[0].values)) == (["local.optimizer", "local.lr"], [75.0, 25.0])
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == [1, 0, 3, 2]


def test_only_the_best_trials_are_shown_in_full(sweep: Path) -> None:
    results = next(b for b in figures_and_tables(report_of([sweep]).sections) if b.key == "results")
    assert isinstance(results, Table)
    assert [row[0] for row in results.rows] == ["trial 1", "trial 0", "trial 3"]


def test_a_sweep_is_reported_alone(sweep: Path, tmp_path: Path) -> None:
    with pytest.raises(FedfuseError, match="give its directory alone"):
        report_of([sweep, a_run(tmp_path / "more", [0.5])])
