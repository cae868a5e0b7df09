"""`fedfuse papers`: what is listed, a run that continues, the page of all results."""

import shutil
import sys
from pathlib import Path

import pytest

from fedfuse.papers import item as items
from fedfuse.papers import overview
from fedfuse.papers.result import Result, read_all
from fedfuse.records.directory import CHECKPOINTS
from tests.command_line import CommandLine

QUICK = ("feddf-figure-2", "--seeds", "2", "--set", "run.rounds=1", "--set", "run.workers=1")
NAME = "feddf-figure-2"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The item with its first group only, and few steps."""
    load = items.load
    whole = load(NAME)
    small = whole.scale("small").model_copy(update={"values": {"steps": 5}})
    made = whole.model_copy(update={"groups": whole.groups[:1], "claims": whole.claims[:1], "small": small})
    for place in ("fedfuse.papers.item.load", "fedfuse.papers.overview.load"):
        monkeypatch.setattr(place, lambda name: made if name == NAME else load(name))


def test_the_list_names_every_item(cli: CommandLine) -> None:
    result = cli.here("papers", "list")
    assert result.code == 0
    assert NAME in result.out
    assert "FedDF, Figure 2" in result.out


def test_a_run_continues_and_writes_numbers_claims_and_page(cli: CommandLine, tmp_path: Path, short: None) -> None:
    out, kept = tmp_path / "out", tmp_path / "results"
    arguments = ("papers", "run", *QUICK, "--out", str(out), "--results", str(kept))
    first = cli.here(*arguments)
    assert first.code == 0, first.text
    assert "FedDF is above FedAvg" in first.out
    assert (out / "report.html").is_file()
    records = {path: path.read_bytes() for path in out.rglob("rounds.jsonl")}
    assert cli.here(*arguments).code == 0
    assert {
        path: path.read_bytes() for path in out.rglob("rounds.jsonl")
    } == records  # with their seconds: nothing ran again
    result = Result.read(kept / f"{NAME}.json")
    assert (result.seeds, result.scale) == ([0, 1], "small")
    assert result.command.startswith(f"fedfuse papers run {NAME} --seeds 2 --set run.rounds=1")
    assert {len(curve) for rows in result.curves.values() for curves in rows.values() for curve in curves} == {1}

    page = tmp_path / "page" / "results.md"
    assert cli.here("papers", "table", str(kept), "--out", str(page)).code == 0
    assert f"## {NAME}" in page.read_text(encoding="utf-8")
    assert (page.parent / "figures" / f"{NAME}.svg").is_file()
    assert list(read_all(kept)) == [NAME]


def test_rounds_of_unfinished_runs_are_shown_without_training(cli: CommandLine, tmp_path: Path, short: None) -> None:
    out, kept = tmp_path / "out", tmp_path / "results"
    rows = ("--row", "FedDF", "--row", "FedAvg")
    arguments = ("papers", "run", NAME, "--seeds", "1", "--set", "run.rounds=3", "--set", "run.workers=1", *rows)
    none = cli.here(*arguments, "--out", str(out), "--recorded")
    assert none.code == 2
    assert "no round is recorded there" in none.err
    assert cli.here(*arguments, "--out", str(out)).code == 0
    feddf, fedavg = sorted(out.rglob("rounds.jsonl"), reverse=True)
    for path, rounds in ((feddf, 2), (fedavg, 1)):  # as if both had been stopped
        shutil.rmtree(path.parent / CHECKPOINTS)
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join(lines[:rounds]), encoding="utf-8")
    shown = cli.here(*arguments, "--out", str(out), "--recorded", "--results", str(kept))
    assert shown.code == 0, shown.text
    result = Result.read(kept / f"{NAME}.json")
    assert {len(curve) for row in result.curves["1"].values() for curve in row} == {1}
    assert result.setting.endswith("Not finished: compared up to round 1")
    assert '--row "FedDF"' in result.command
    assert len(feddf.read_text(encoding="utf-8").splitlines()) == 2


def test_single_rows_are_chosen_by_name(cli: CommandLine, tmp_path: Path) -> None:
    wrong = cli.here("papers", "run", NAME, "--row", "FedBE", "--out", str(tmp_path / "out"))
    assert wrong.code == 2
    assert "no row 'FedBE': it has FedAvg; FedDF" in wrong.err


def test_a_picture_needs_matplotlib_before_anything_is_trained(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    missing = cli.here("papers", "run", "feddf-figure-1", "--out", str(tmp_path / "out"))
    assert (missing.code, missing.out) == (2, "")
    assert 'pictures need matplotlib: pip install "fedfuse[plots]"' in missing.err
    assert not (tmp_path / "out").exists()


def test_the_page_has_every_scale_of_an_item(tmp_path: Path) -> None:
    for scale in ("full", "small"):
        curves = {"C 0.2, alpha 1, 40 epochs": {"FedAvg": [[0.25, 0.5]], "FedDF": [[0.5, 0.9]]}}
        result = Result("feddf-table-1", scale, [0], "2020-01-01", "0000000", "command", 0.5, "setting", curves)
        result.write(tmp_path / f"{result.name}.json")
    results = read_all(tmp_path)
    assert list(results) == ["feddf-table-1", "feddf-table-1-full"]
    page = overview.text(results)
    assert "## feddf-table-1\n" in page
    assert "## feddf-table-1-full\n" in page
    assert "figures/feddf-table-1-full-c-0.2-alpha-1-40-epochs.svg" in page


def test_mistakes_are_sentences(cli: CommandLine, tmp_path: Path) -> None:
    wrong = cli.here("papers", "run", "feddf-figure-22")
    assert (wrong.code, wrong.out) == (2, "")
    assert NAME in wrong.err
    (tmp_path / "foreign.json").write_text('{"a": 1}', encoding="utf-8")
    foreign = cli.here("papers", "table", str(tmp_path), "--out", str(tmp_path / "page.md"))
    assert foreign.code == 2
    assert "foreign.json" in foreign.err
    missing = cli.here("papers", "table", str(tmp_path / "none"))
    assert missing.code == 2
    assert "no such folder" in missing.err
