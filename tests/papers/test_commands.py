"""`fedfuse papers`: what is listed, a run that continues, the page of all results."""

from pathlib import Path

import pytest

from fedfuse.papers import item as items
from fedfuse.papers.result import Result, read_all
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
