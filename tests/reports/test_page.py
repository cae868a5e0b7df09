"""The page as text: whole, escaped, alone. What a browser makes of it is in test_browser.py."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path

import pytest

from fedfuse.records.sealed import sealed
from fedfuse.reports import html, report
from fedfuse.reports.elements import Choice, Table, Words, figures_and_tables
from fedfuse.reports.figure import Axis, Bar, Bars, Curves, Parallel, Series
from fedfuse.reports.html import arrangement
from fedfuse.reports.page import Report, report_of
from fedfuse.reports.to_plotly import to_plotly
from tests.reports.written import a_run, distilled

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def figures_of(page: str) -> dict[str, dict[str, object]]:
    match = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    figures: dict[str, dict[str, object]] = json.loads(match[1])
    return figures


def test_words_from_outside_stay_words(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", [0.5], rejected={1: {"1": HOSTILE}})
    names = json.loads((run / "federation.json").read_text()) | {"labels": ["cat", HOSTILE, "owl"]}
    del names["digest"]
    (run / "federation.json").write_text(sealed(json.dumps(names)))
    body = html.body(report_of([run]))
    assert "<script>alert" not in body
    assert "<img src=x" not in body
    assert "&lt;script&gt;alert(1)" in body
    assert HOSTILE in figures_of(body)["classes"]["data"][0]["x"]  # type: ignore[index]


def test_the_page_is_one_file_that_names_no_other(tmp_path: Path) -> None:
    page = report(a_run(tmp_path / "run", [0.5, 0.6]))
    assert page == tmp_path / "run" / "report.html"
    text = page.read_text(encoding="utf-8")
    packed = re.search(r'<script type="application/gzip" id="plotly">(.*?)</script>', text)
    assert packed is not None
    assert gzip.decompress(base64.b64decode(packed[1])).decode() == html.plotly_script()
    text = text.replace(packed[1], "")
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)""", text)
    assert "http" not in text.replace("http-equiv", "")
    assert page.stat().st_size < 2_300_000


def test_pages_of_a_folder_may_share_plotly(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", [0.5, 0.6])
    for name in ("a", "b"):
        page = report(run, out=tmp_path / f"pages/{name}.html", shared_assets=True)
        assert page.stat().st_size < 100_000
        assert re.findall(r'<script src="([^"]+)"', page.read_text(encoding="utf-8")) == [html.shared_name()]
    names = sorted(file.name for file in (tmp_path / "pages").iterdir())
    assert names == ["a.html", "b.html", html.shared_name()]
    assert (tmp_path / "pages" / html.shared_name()).read_text(encoding="utf-8") == html.plotly_script()


def test_the_same_records_give_the_same_page(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", [0.5, 0.6])
    assert report(run, out=tmp_path / "a.html").read_bytes() == report(run, out=tmp_path / "b.html").read_bytes()


def test_every_figure_has_its_place_and_its_numbers(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", [0.5], algorithm="feddf", facts=[distilled(0.2, 0.4, 0.6, 0.5)])
    report = report_of([run])
    body = html.body(report)
    keys = [b.key for b in figures_and_tables(report.sections) if not isinstance(b, Table)]
    assert len(keys) == len(set(keys)) >= 12
    assert re.findall(r'data-figure="([^"]+)"', body) == keys
    assert list(figures_of(body)) == keys


def test_figures_stand_in_pairs() -> None:
    curve = Curves("c", "", "", "", "", [])
    table = Table("t", "", [], [])
    pair = Choice("p", {"a": [curve], "b": [curve]})
    tables = Choice("q", {"a": [table]})
    blocks = [curve, curve, curve, table, curve, pair, Words("w"), tables, curve]
    assert [whole for _, whole in arrangement(blocks)] == [False, False, True, True, False, False, True, True, True]


def test_a_band_belongs_to_its_curve() -> None:
    series = Series("a", [1, 2], [10.0, 20.0], 3, [1.0, 2.0])
    band, line = to_plotly(Curves("k", "", "", "", "", [series]))["data"]
    assert band["y"] == [11.0, 22.0, 18.0, 9.0]
    assert band["legendgroup"] == line["legendgroup"] == "a"
    assert (band["showlegend"], line["line"]["color"], band["fillcolor"]) == (False, "@3", "@3/0.16")
    assert len(to_plotly(Curves("k", "", "", "", "", [Series("a", [1], [10.0], 0)]))["data"]) == 1


@pytest.mark.parametrize(
    ("values", "deviation", "expected"),
    [([80.0, 90.0], [3.0, 1.0], "inside"), ([80.0, 90.0], [0.0, 0.0], "outside"), ([1.0, 90.0], [3.0, 1.0], "outside")],
)
def test_the_text_of_a_bar_is_where_no_deviation_crosses_it(
    values: list[float], deviation: list[float], expected: str
) -> None:
    (bar,) = to_plotly(Bars("k", "", "", "x", "y", ["a", "b"], [Bar("b", values, 0, deviation)]))["data"]
    assert bar["textposition"] == expected


def test_bars_may_lie_and_may_be_missing() -> None:
    made = to_plotly(Bars("k", "", "", "stage", "s", ["x", "y"], [Bar("b", [1.0, None], 0)], sideways=True))
    (bar,) = made["data"]
    assert (bar["orientation"], bar["x"], bar["y"]) == ("h", [1.0, None], ["x", "y"])
    assert made["layout"]["yaxis"]["title"]["text"] == "stage"


def test_a_parallel_axis_by_hand() -> None:
    # On a logarithmic axis from 0.01 to 1, 0.1 is in the middle; words stand at their numbers.
    rate = Axis("lr", [0.01, 0.1, 1.0], log=True)
    assert [rate.height(v) for v in rate.values] == pytest.approx([0.0, 0.5, 1.0])
    assert sorted(rate.marks(), key=lambda m: m[1]) == [("0.01", 0.0), ("0.1", pytest.approx(0.5)), ("1", 1.0)]
    kind = Axis("kind", [0.0, 1.0, 0.0], {0.0: "sgd", 1.0: "adam"})
    assert kind.marks() == [("sgd", 0.0), ("adam", 1.0)]
    score = Axis("score", [50.0, 70.0, 60.0])
    data = to_plotly(Parallel("p", "", "", [rate, kind, score]))["data"]
    assert [trace["line"]["color"] for trace in data] == ["@shade/0.000", "@shade/1.000", "@shade/0.500"]
    assert data[1]["text"] == ["lr = 0.1", "kind = adam", "score = 70"]


def test_a_report_of_nothing_is_a_page_too() -> None:
    assert "No round is on record" in html.whole_page(Report("Nothing yet", "No round is on record so far.", []))


def test_rounds_that_were_not_evaluated_are_no_points_of_a_curve(tmp_path: Path) -> None:
    page = report_of([a_run(tmp_path / "run", [None, 0.5, None, 0.7], rounds=6)])
    figures = {b.key: b for b in figures_and_tables(page.sections) if isinstance(b, Curves)}
    (curve,) = figures["learning-curves"].series
    assert (curve.x, curve.y) == ([2, 4], [50.0, 70.0])
    (by_bytes,) = figures["accuracy-by-bytes"].series
    assert by_bytes.x == pytest.approx([1600 / 1e6, 3200 / 1e6])  # 800 bytes a round, evaluated or not
    text = html.body(page)
    assert "fedavg ends at 70.00\xa0% test accuracy after 4 rounds" in text


def test_a_run_without_an_evaluated_round_says_so(tmp_path: Path) -> None:
    assert report_of([a_run(tmp_path / "run", [None, None], rounds=6)]).decision == "No round has been evaluated yet."
