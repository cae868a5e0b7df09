"""What the figures of an item draw, and what is on its page."""

import base64
import re
from pathlib import Path

import pytest

from fedfuse.papers import page
from fedfuse.papers.item import Item, load
from fedfuse.papers.result import Result
from fedfuse.papers.show import figures
from fedfuse.reports.figure import Bars, Curves

ITEM = Item(
    title="t", paper="FedDF", place="Figure 16", shows="s", measure="mean", small={"experiment": "digits"},
    rows=[
        {"name": "FedAvg", "algorithm": "fedavg"},
        {"name": "after", "algorithm": "feddf"},
        {"name": "before", "algorithm": "feddf", "series": "average"},
        {"name": "ensemble", "algorithm": "feddf", "series": "ensemble"},
    ],
)  # fmt: skip


def drawn(*curves: list[float]) -> Curves:
    """Return what is drawn of these curves, one for each seed, if all rows have them."""
    result = Result(
        "t", "small", list(range(len(curves))), "2020-01-01", "0000000", "c", 1.0, "s",
        {"all": {row.name: list(curves) for row in ITEM.rows}},
    )  # fmt: skip
    (figure,) = figures("t", ITEM, result)
    assert isinstance(figure, Curves)
    return figure


def test_rows_of_the_same_runs_share_a_colour() -> None:
    series = drawn([0.1, 0.3]).series
    assert [(s.colour, s.dash) for s in series] == [(0, "solid"), (1, "solid"), (1, "dash"), (1, "dot")]
    assert list(series[0].y) == pytest.approx([10, 30])


def test_what_a_run_results_in_has_a_band_and_what_is_measured_on_the_way_has_none() -> None:
    # Seeds at 10, 20 and 30 %: a deviation of sqrt((100 + 0 + 100) / 2) = 10 points.
    series = drawn([0.1], [0.2], [0.3]).series
    assert [list(s.deviation) for s in series] == [pytest.approx([10]), pytest.approx([10]), [], []]


def test_curves_of_many_rounds_are_means_of_the_last_ten() -> None:
    # A curve that rises by a point each round: the mean of the last ten is 4.5 points below it, of two 0.5.
    figure = drawn([number / 100 for number in range(51)])
    y = list(figure.series[0].y)
    assert (y[0], y[1], y[50]) == pytest.approx((0, 0.5, 45.5))
    assert figure.y_title == "test accuracy, %, mean of 10 rounds"
    assert list(drawn([number / 100 for number in range(50)]).series[0].y)[49] == pytest.approx(49)


GAINS = Item(
    title="t", paper="FedDF", place="Figure 2", shows="s", measure="final", small={"experiment": "digits"},
    figure="gains", gains={"of": ["student", "ensemble"], "over": "average"},
    groups=[{"name": "short"}, {"name": "long"}, {"name": "without a student"}],
    rows=[
        {"name": "average", "algorithm": "feddf", "series": "average"},
        {"name": "student", "algorithm": "feddf", "groups": ["short", "long"]},
        {"name": "ensemble", "algorithm": "feddf", "series": "ensemble"},
    ],
)  # fmt: skip


def test_gains_are_paired_differences_with_standard_errors() -> None:
    # Two seeds, 1 and 3 points above the average after short training: 2 points, standard error sqrt(2) / sqrt(2) = 1.
    average, student, ensemble = [[0.20], [0.40]], [[0.21], [0.43]], [[0.25], [0.45]]
    curves = {
        "short": {"average": average, "student": student, "ensemble": ensemble},
        "long": {"average": student, "student": average, "ensemble": student},
        "without a student": {"average": average, "ensemble": ensemble},
    }
    result = Result("t", "small", [0, 1], "2020-01-01", "0000000", "c", 1.0, "s", curves)
    (figure,) = figures("t", GAINS, result)
    assert isinstance(figure, Bars)
    assert figure.categories == ["short", "long"]
    assert figure.y_title == "points above average"
    (students, ensembles) = figure.bars
    assert list(students.values) == pytest.approx([2, -2])
    assert list(students.deviation) == pytest.approx([1, 1])
    assert list(ensembles.values) == pytest.approx([5, 0])
    alone = GAINS.at("small", rows=["average"])
    assert figures("t", alone, result) == []


def test_gains_name_rows_of_the_item() -> None:
    text = GAINS.model_dump(exclude_none=True)
    with pytest.raises(ValueError, match="gains names 'mean', which is no row"):
        Item(**{**text, "gains": {"of": ["student"], "over": "mean"}})
    with pytest.raises(ValueError, match="the figure of gains needs gains"):
        Item(**{key: value for key, value in text.items() if key != "gains"})


def test_the_page_shows_the_picture_that_was_drawn(tmp_path: Path) -> None:
    item = load("feddf-figure-1")
    curves = {group.name: {row.name: [[0.5], [0.6]] for row in item.rows_of(group.name)} for group in item.groups}
    result = Result("feddf-figure-1", "small", [0, 1], "2020-01-01", "0000000", "c", 1.0, "s", curves)
    png = b"\x89PNG\r\n\x1a\n picture"
    (tmp_path / "picture.png").write_bytes(png)
    text = page.write("t", item, result, tmp_path / "page.html", tmp_path / "picture.png").read_text(encoding="utf-8")
    (source, shows) = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="([^"]+)"', text)[0]
    assert base64.b64decode(source) == png
    assert shows.startswith("Decision regions of two local models")
