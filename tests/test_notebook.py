"""What notebooks show of results: short texts, HTML that is whole and escaped, tables, plots and reports."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import fedfuse
from fedfuse import notebook
from fedfuse.fusion import AdamCosine
from fedfuse.runs.result import Comparison
from fedfuse.sweeps.results import Sweep, Trial
from fedfuse.sweeps.space import Range
from tests.faults.disk import tiny


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("compared")
    return fedfuse.compare(tiny(rounds=3), ["fedavg", "fedprox(mu=0.1)"], seeds=[0, 1], out=folder)


@pytest.fixture(scope="module")
def run(rows: Comparison) -> fedfuse.Run:
    (first, _) = rows[0].runs
    assert isinstance(first, fedfuse.Run)
    return first


def parsed(html: str) -> ET.Element:
    """An error if a tag is not closed or a letter not escaped."""
    return ET.fromstring(f"<page>{html}</page>")


def cells(html: str) -> list[str]:
    return ["".join(cell.itertext()) for cell in parsed(html).iter("td")]


def test_table_and_curve_are_escaped() -> None:
    page = parsed(notebook.table("a < b", ("<th>",), [("x & y",)]) + notebook.curve({"<1>": [0.1, 0.3], "b": [0.2]}))
    assert {"a < b", "<th>", "x & y", "<1>", "30.0 %", "10.0 %"} <= set(page.itertext())
    assert notebook.curve({"": []}) == ""


def test_curve_by_hand() -> None:
    """280 x 90 with a margin of 8: rounds are 132 apart, and 0.5 is in the middle."""
    lines = parsed(notebook.curve({"": [0.0, 0.5, 1.0]})).iter("{http://www.w3.org/2000/svg}polyline")
    assert [line.get("points") for line in lines] == ["8.0,82.0 140.0,45.0 272.0,8.0"]


def test_an_experiment_and_its_federation() -> None:
    experiment = tiny()
    assert str(experiment) == repr(experiment)
    assert repr(experiment).startswith("Experiment('experiment', data: synthetic, ")
    assert len(repr(experiment)) < 200
    assert "fedavgm" in cells(experiment._repr_html_())
    assert "0.9" in cells(experiment._repr_html_())  # beta, among all settings
    federation = fedfuse.check(experiment).federation
    assert repr(federation).startswith("Federation(2 clients with ")
    assert len(repr(federation)) < 200
    assert cells(federation._repr_html_())[1] == str(federation.sizes[0])


def test_a_run(run: fedfuse.Run, tmp_path: Path) -> None:
    assert repr(run) == (
        f"Run({str(run.path)!r}, 3 rounds, accuracy {run.final.test_accuracy:.4f}, "
        f"best {run.best.test_accuracy:.4f} in round {run.best.round})"
    )
    assert f"{100 * run.final.test_accuracy:.2f}" in cells(run._repr_html_())
    assert "<svg" in run._repr_html_()
    assert run.report(tmp_path / "page.html", target=1.0).is_file()


def test_a_comparison_is_a_list(rows: Comparison, run: fedfuse.Run) -> None:
    assert isinstance(rows, list)
    assert [row.name for row in rows] == ["fedavg", "fedprox"]
    assert repr(rows).startswith(f"Comparison({str(rows.path)!r}, fedavg: ")
    assert "fedprox(mu=0.1)" in cells(rows._repr_html_())
    assert repr(rows[0]).startswith("Row('fedavg', 2 runs")
    other = rows[0].runs[1].history[0].test_accuracy
    assert rows[0].mean_by_round()[0] == pytest.approx((run.history[0].test_accuracy + other) / 2)


def test_frames(rows: Comparison, run: fedfuse.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    frame = run.to_pandas()
    assert list(frame.index) == [1, 2, 3]
    assert list(frame["test_accuracy"]) == [record.test_accuracy for record in run.history]
    assert len(rows.to_pandas()) == 2 * 2 * 3
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(fedfuse.FedfuseError, match=r'pip install "fedfuse\[notebook\]"'):
        run.to_pandas()


def test_plots(rows: Comparison, run: fedfuse.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    axes = rows.plot()
    assert [line.get_label() for line in axes.lines] == ["fedavg", "fedprox(mu=0.1)"]
    assert list(axes.lines[0].get_ydata()) == pytest.approx([100 * mean for mean in rows[0].mean_by_round()])
    assert run.plot(axes) is axes
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(fedfuse.FedfuseError, match=r'pip install "fedfuse\[notebook\]"'):
        run.plot()


def test_a_sweep(tmp_path: Path) -> None:
    trials = [
        Trial(number, {"local.lr": rate}, "complete", accuracy, 0.5, 3, "", ())
        for number, (rate, accuracy) in enumerate([(0.1, 0.6), (0.2, 0.7)])
    ]
    sweep = Sweep(tmp_path, "digits", 3, 1, {"local.lr": Range(0.1, 0.2)}, tuple(trials))
    assert repr(sweep) == f"Sweep({str(tmp_path)!r}, 2 trials, best validation accuracy 0.7000 of trial 1)"
    assert cells(sweep._repr_html_())[:3] == ["1", "0.2", "70.00"]
    assert repr(replace(sweep, trials=())) == f"Sweep({str(tmp_path)!r}, 0 trials)"


def test_a_fusion_computes_with_one_thread_and_shows_itself() -> None:
    """The teacher sees the number of threads; the caller's is restored."""
    seen, before = set[int](), torch.get_num_threads()

    def teacher(x: torch.Tensor) -> torch.Tensor:
        seen.add(torch.get_num_threads())
        return x[:, :3]

    x, student = torch.randn(40, 4), torch.nn.Linear(4, 3)
    quick = AdamCosine(steps=4, batch_size=8)
    torch.set_num_threads(2)
    try:
        fused = fedfuse.fuse(teacher, student, x, distiller=quick, validation=(x[:8], torch.arange(8) % 3))
        assert (seen, torch.get_num_threads()) == ({1}, 2)
        fedfuse.fuse(teacher, student, x, distiller=quick, threads=2)
    finally:
        torch.set_num_threads(before)
    assert seen == {1, 2}
    assert repr(fused).startswith("Fused(Linear, 4 steps, ")
    assert len(repr(fused)) < 150
    assert {"ensemble", "student"} <= set(cells(fused._repr_html_()))
