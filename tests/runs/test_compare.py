"""`fedfuse compare`: several algorithms and seeds under the same conditions."""

from pathlib import Path

import pytest

import fedfuse
from fedfuse.config.overlay import algorithm_settings
from fedfuse.runs.compare import compare, variants
from fedfuse.types import FedfuseError

SMALL = {
    "run.rounds": 2,
    "run.workers": 1,
    "local.epochs": 1,
    "partition.clients": 4,
    "run.fraction": 0.5,
}


def test_an_algorithm_is_said_by_its_name_with_or_without_settings() -> None:
    assert algorithm_settings("fedbe") == {"algorithm.name": "fedbe"}
    assert algorithm_settings(' fedbe (samples=5, posterior="dirichlet")') == {
        "algorithm.name": "fedbe",
        "algorithm.samples": 5,
        "algorithm.posterior": "dirichlet",
    }


def test_a_dotted_setting_is_the_experiments_for_this_algorithm_alone() -> None:
    text = 'fed-et(lam=0.5, models.clients={"mlp:8"=1, "mlp:6"=1}, models.server="mlp:16")'
    assert algorithm_settings(text) == {
        "algorithm.name": "fed-et",
        "algorithm.lam": 0.5,
        "models.clients": {"mlp:8": 1, "mlp:6": 1},
        "models.server": "mlp:16",
    }
    made = variants(fedfuse.load("digits", SMALL), ["fedavg", text], [0])
    assert [list(each.models.weights) for each in made.values()] == [["mlp:64-32"], ["mlp:8", "mlp:6"]]
    assert {each.run.selection for each in made.values()} == {"uniform"}  # the same cohorts for both


def test_of_run_only_the_rounds_may_differ() -> None:
    assert algorithm_settings("one-shot(run.rounds=1)") == {"algorithm.name": "one-shot", "run.rounds": 1}
    with pytest.raises(FedfuseError, match=r"run\.seed is the same for all algorithms"):
        algorithm_settings("fedavg(run.seed=3)")


@pytest.mark.parametrize("text", ["fedbe(samples=", "fedbe)", "(samples=5)", "fedbe(samples)", ""])
def test_what_is_neither_is_an_error_that_shows_how_to_say_it(text: str) -> None:
    with pytest.raises(FedfuseError, match="Write a name, or a name with settings"):
        algorithm_settings(text)


def test_each_variant_has_its_algorithm_and_seed_and_nothing_else_differs() -> None:
    base = fedfuse.load("digits", SMALL)
    made = variants(base, ["fedavg", "fedprox(mu=0.5)"], [3, 4])
    assert list(made) == [(3, "fedavg"), (3, "fedprox(mu=0.5)"), (4, "fedavg"), (4, "fedprox(mu=0.5)")]
    prox = made[4, "fedprox(mu=0.5)"].resolved()
    assert prox["algorithm"]["mu"] == 0.5
    assert prox["run"]["seed"] == 4
    plain = base.resolved()
    assert {k: v for k, v in prox.items() if k not in ("algorithm", "run")} == {
        k: v for k, v in plain.items() if k not in ("algorithm", "run")
    }


def test_algorithms_meet_the_same_cohorts_and_what_is_finished_is_not_run_again(tmp_path: Path) -> None:
    base = fedfuse.load("digits", SMALL)
    first = compare(base, ["fedavg", "fedavgm(beta=0.0)"], out=tmp_path)
    cohorts = [[record.cohort for record in row.runs[0].history] for row in first]
    assert cohorts[0] == cohorts[1]
    assert first[0].final == first[1].final  # beta = 0 is FedAvg, so everything else must have been the same
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/checkpoint/*")}
    again = compare(base, ["fedavg", "fedavgm(beta=0.0)"], out=tmp_path)
    assert [row.final for row in again] == [row.final for row in first]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/checkpoint/*")} == stamps


def test_all_algorithms_are_checked_before_the_first_is_run(tmp_path: Path) -> None:
    base = fedfuse.load("digits", {**SMALL, "models.clients": "mlp:8:bn"})
    with pytest.raises(FedfuseError, match="fedma: fedma cannot match mlp:8:bn"):
        compare(base, ["fedavg", "fedma"], out=tmp_path)
    assert list(tmp_path.iterdir()) == []
