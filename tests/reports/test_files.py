"""The numbers and the pictures of a report, in files."""

from __future__ import annotations

import csv
import re
from importlib import resources
from pathlib import Path

import pytest

from fedfuse.reports.elements import Table, figures_and_tables
from fedfuse.reports.files import write_numbers, write_pictures
from fedfuse.reports.page import report_of
from fedfuse.reports.to_picture import PALETTE
from fedfuse.types import FedfuseError
from tests.reports.written import a_run, distilled


@pytest.fixture
def run(tmp_path: Path) -> Path:
    facts = [distilled(0.2, 0.4, 0.6, 0.5), distilled(0.4, 0.6, 0.8, 0.9)]
    return a_run(tmp_path / "run", [0.5, 0.9], algorithm="feddf", facts=facts, rejected={1: {"1": "=cmd()"}})


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as text:
        return list(csv.DictReader(text))


def test_every_figure_and_table_has_its_numbers(run: Path, tmp_path: Path) -> None:
    files = write_numbers([run], tmp_path / "csv")
    keys = {block.key for block in figures_and_tables(report_of([run]).sections)}
    assert {file.stem for file in files} == {*keys, "rounds"}
    curve = rows(tmp_path / "csv/learning-curves.csv")
    assert [(r["series"], float(r["round"]), float(r["test accuracy / %"])) for r in curve] == [
        ("feddf", 1, 50.0),
        ("feddf", 2, 90.0),
    ]
    partition = rows(tmp_path / "csv/partition.csv")
    assert partition[0] == {"client": "0", "class": "cat", "examples": "4"}
    every = rows(tmp_path / "csv/rounds.csv")
    assert [float(r["ensemble/accuracy"]) for r in every] == [0.6, 0.8]
    assert [float(r["bytes/up"]) for r in every] == [400, 400]


def test_tables_hold_numbers_without_units(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / f"run-{seed}", [0.5, 0.6 + seed / 10], seed=seed) for seed in (0, 1)]
    write_numbers(runs, tmp_path / "csv", target=0.7)
    (cost,) = rows(tmp_path / "csv/cost.csv")
    assert (cost["sent up / bytes"], cost["time / s"], cost["peak memory, server / bytes"]) == (
        "800.0",
        "6.0",
        "2000000",
    )
    (result,) = rows(tmp_path / "csv/results.csv")
    assert float(result["final / %"]) == pytest.approx(65)
    assert float(result["final / %, deviation"]) == pytest.approx(50**0.5)
    (target,) = rows(tmp_path / "csv/targets.csv")
    assert (target["rounds to 70 %"], target["rounds to 70 %, lower bound"], target["seeds at 70 %"]) == ("2", "1", "1")
    for name in ("cost", "results", "targets"):
        (row,) = rows(tmp_path / f"csv/{name}.csv")
        assert all(float(cell) >= 0 for column, cell in row.items() if column != "algorithm")


def test_a_clients_words_are_no_formula(run: Path, tmp_path: Path) -> None:
    write_numbers([run], tmp_path)
    assert rows(tmp_path / "clients.csv")[1]["why refused, last"] == "'=cmd()"


def test_every_figure_is_drawn_and_the_same_numbers_give_the_same_picture(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first = write_pictures([run], tmp_path / "a", kinds=["svg"])
    again = write_pictures([run], tmp_path / "b", kinds=["svg"])
    figures = [b.key for b in figures_and_tables(report_of([run]).sections) if not isinstance(b, Table)]
    assert [file.stem for file in first] == figures
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in again]
    curve = (tmp_path / "a/learning-curves.svg").read_text()
    assert "test accuracy / %" in curve


def test_an_unknown_kind_of_picture_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(FedfuseError, match=r"'gif'.* svg, png, pdf"):
        write_pictures([run], tmp_path / "x", kinds=["gif"])
    assert not (tmp_path / "x").exists()


def test_pictures_have_the_colours_of_the_page() -> None:
    script = resources.files("fedfuse.reports").joinpath("assets/page.js").read_text(encoding="utf-8")
    light, dark = (
        re.findall(r'"(#\w+)"', script.split(f"{theme}: [", 1)[1].split("]")[0]) for theme in ("light", "dark")
    )
    assert tuple(light) == PALETTE
    assert len(set(light)) == len(set(dark)) == len(light)
