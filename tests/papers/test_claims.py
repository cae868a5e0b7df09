"""Verdicts about claims, with numbers that can be redone on paper."""

import pytest

from fedfuse.papers.claims import check, count, verdict
from fedfuse.papers.item import Item
from fedfuse.papers.result import Result
from fedfuse.records.statistics import Difference

SMALL = {"experiment": "digits"}
ROWS = ({"name": "FedAvg", "algorithm": "fedavg"}, {"name": "FedDF", "algorithm": "feddf"})


def item(**sections: object) -> Item:
    return Item(title="t", paper="FedDF", place="Table 1", shows="s", small=SMALL, rows=ROWS, **sections)


def result(curves: dict[str, dict[str, list[list[float]]]], **more: object) -> Result:
    seeds = len(next(iter(next(iter(curves.values())).values())))
    facts = {"date": "2020-01-01", "commit": "0000000", "command": "c", "minutes": 1.0, "setting": "s"}
    return Result(item="t", scale="small", seeds=list(range(seeds)), curves=curves, **facts, **more)


@pytest.mark.parametrize(
    ("mean", "error", "within", "expected"),
    [
        (2.1, 1.0, None, "holds"),
        (2.0, 1.0, None, "not decided by these seeds"),
        (-2.1, 1.0, None, "does not hold"),
        (9.0, None, None, "not decided by these seeds"),  # one seed
        (0.5, 0.2, 1.0, "holds"),  # from 0.1 to 0.9
        (0.9, 0.2, 1.0, "not decided by these seeds"),  # from 0.5 to 1.3
        (1.5, 0.2, 1.0, "does not hold"),  # from 1.1 to 1.9
        (-1.5, 0.2, 1.0, "does not hold"),
    ],
)
def test_clear_is_more_than_two_standard_errors(mean: float, error: float | None, within: float | None, expected: str):
    assert verdict(Difference(mean, error), within) == expected


def test_a_difference_is_paired_over_seeds():
    # Per seed +1, +2 and +3 points: mean 2, deviation 1, standard error 1 / sqrt(3) = 0.577; two of them are below 2.
    curves = {"all": {"FedAvg": [[0.1], [0.5], [0.9]], "FedDF": [[0.11], [0.52], [0.93]]}}
    claims = [{"says": "better", "higher": "FedDF", "lower": "FedAvg"}]
    (checked,) = check(item(claims=claims), result(curves))
    assert checked.difference.mean == pytest.approx(2.0)
    assert checked.difference.error == pytest.approx(3**-0.5)
    assert checked.verdict == "holds"


@pytest.mark.parametrize(("measure", "expected"), [("best", 20.0), ("final", -10.0), ("mean", 10.0)])
def test_measures_of_a_curve(measure: str, expected: float):
    # FedAvg 50, 60; FedDF 80, 50: best 80 - 60, last 50 - 60, mean 65 - 55 (of the second seed: the same).
    curves = {"all": {"FedAvg": [[0.5, 0.6]] * 2, "FedDF": [[0.8, 0.5]] * 2}}
    claims = [{"says": "better", "higher": "FedDF", "lower": "FedAvg", "measure": measure}]
    (checked,) = check(item(claims=claims), result(curves))
    assert checked.difference.mean == pytest.approx(expected)


def test_rounds_and_parameters_count_to_the_target():
    curves = {"all": {"FedAvg": [[0.5, 0.6, 0.8]] * 2, "FedDF": [[0.7, 0.8, 0.9]] * 2}}
    sent = {"all": {"FedAvg": [[10.0, 20.0, 30.0]] * 2, "FedDF": [[5.0, 10.0, 15.0]] * 2}}
    claims = [
        {"says": "fewer rounds", "higher": "FedAvg", "lower": "FedDF", "measure": "rounds"},
        {"says": "fewer parameters", "higher": "FedAvg", "lower": "FedDF", "measure": "parameters"},
    ]
    rounds, parameters = check(item(claims=claims, target=0.75), result(curves, sent=sent))
    assert rounds.difference.mean == 3 - 2
    assert parameters.difference.mean == 30 - 10


def test_a_target_that_is_not_reached_counts_one_round_more():
    curves = {"all": {"FedAvg": [[0.5, 0.6]], "FedDF": [[0.5, 0.9]]}}
    made = item(target=0.75, measure="rounds")
    assert result(curves).values(made, "rounds", "all", "FedAvg") == [3.0]
    assert not result(curves).all_reach(made, "all", "FedAvg")


def test_a_claim_may_compare_gains_of_groups():
    groups = [{"name": "short"}, {"name": "long"}]
    curves = {
        "short": {"FedAvg": [[0.5]] * 2, "FedDF": [[0.51]] * 2},
        "long": {"FedAvg": [[0.6]] * 2, "FedDF": [[0.65]] * 2},
    }
    gains = {"higher": ["long / FedDF", "short / FedAvg"], "lower": ["long / FedAvg", "short / FedDF"]}
    claims = [{"says": "better", "higher": "FedDF", "lower": "FedAvg"}, {"says": "grows", **gains}]
    checked = check(item(claims=claims, groups=groups), result(curves))
    assert [(one.group, round(one.difference.mean, 6)) for one in checked] == [("short", 1), ("long", 5), ("", 4)]
    assert count(checked) == "3 hold"
