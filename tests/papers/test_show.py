"""What the figures of an item draw."""

import pytest

from fedfuse.papers.item import Item
from fedfuse.papers.result import Result
from fedfuse.papers.show import figures
from fedfuse.reports.figure import Curves

ITEM = Item(
    title="t", paper="FedDF", place="Figure 16", shows="s", measure="mean", small={"experiment": "digits"},
    rows=[
        {"name": "FedAvg", "algorithm": "fedavg"},
        {"name": "after", "algorithm": "feddf"},
        {"name": "before", "algorithm": "feddf", "series": "average"},
    ],
)  # fmt: skip


def drawn(curve: list[float]) -> Curves:
    result = Result(
        "t", "small", [0], "2020-01-01", "0000000", "c", 1.0, "s",
        {"all": {row.name: [curve] for row in ITEM.rows}},
    )  # fmt: skip
    (figure,) = figures("t", ITEM, result)
    assert isinstance(figure, Curves)
    return figure


def test_rows_of_the_same_runs_share_a_colour() -> None:
    series = drawn([0.1, 0.3]).series
    assert [(s.colour, s.dash) for s in series] == [(0, "solid"), (1, "solid"), (1, "dash")]
    assert list(series[0].y) == pytest.approx([10, 30])


def test_curves_of_many_rounds_are_means_of_the_last_ten() -> None:
    # A curve that rises by a point each round: the mean of the last ten is 4.5 points below it, of two 0.5.
    figure = drawn([number / 100 for number in range(51)])
    y = list(figure.series[0].y)
    assert (y[0], y[1], y[50]) == pytest.approx((0, 0.5, 45.5))
    assert figure.y_title == "test accuracy, %, mean of 10 rounds"
    assert list(drawn([number / 100 for number in range(50)]).series[0].y)[49] == pytest.approx(49)
