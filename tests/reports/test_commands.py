"""`report`, `watch` and `export`, as a user has them; and the page that comes by itself."""

from __future__ import annotations

import re
import signal
import time
import urllib.request
from pathlib import Path

from tests.command_line import ENOUGH, SMALL, CommandLine
from tests.reports.written import a_run


def test_a_run_ends_with_its_report(cli: CommandLine, tmp_path: Path) -> None:
    result = cli.here(*SMALL, "-r", "1", "--workers", "1", "--out", tmp_path / "run")
    assert result.code == 0
    assert f"report    {tmp_path}/run/report.html" in result.out
    assert (tmp_path / "run/report.html").stat().st_size > 1_000_000
    result = cli.here(*SMALL, "-r", "1", "--workers", "1", "--out", tmp_path / "other", "--no-report")
    assert "report.html" not in result.out
    assert not (tmp_path / "other/report.html").exists()


def test_a_comparison_has_one_report_for_all(cli: CommandLine, tmp_path: Path) -> None:
    small = ("compare", SMALL[1], "-a", "fedavg", "-a", "fedprox", "-r", "1", "--workers", "1", "--target", "0.2")
    result = cli.here(*small, "--out", tmp_path)
    assert result.code == 0
    assert [page.relative_to(tmp_path) for page in tmp_path.rglob("report.html")] == [Path("report.html")]
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "rounds to 20 %" in text


def test_a_report_that_cannot_be_written_takes_nothing_from_the_run(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "run/report.html").mkdir(parents=True)
    result = cli.here(*SMALL, "-r", "1", "--workers", "1", "--out", tmp_path / "run")
    assert result.code == 0
    assert "no report was written" in result.out
    assert list((tmp_path / "run/models").iterdir())


def test_report_writes_where_it_is_told(cli: CommandLine, tmp_path: Path) -> None:
    runs = [a_run(tmp_path / "a", [0.5]), a_run(tmp_path / "b", [0.6], algorithm="feddf")]
    result = cli.here("report", *runs, "--out", tmp_path / "pages/both.html")
    assert (result.code, (tmp_path / "pages/both.html").is_file()) == (0, True)
    assert cli.here("report", runs[0]).code == 0
    assert (runs[0] / "report.html").is_file()


def test_mistakes_are_messages(cli: CommandLine, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", [0.5])
    for arguments, message in (
        (("report", tmp_path / "none"), "no such directory"),
        (("report", run, "--out", tmp_path), "is a folder: name a file"),
        (("report", run, "--target", "80"), "between 0 and 1"),
        (("watch", tmp_path / "none"), "no such directory"),
        (("export", run), "give --hub-folder DIR, --onnx FILE, --csv or --figures DIR"),
    ):
        result = cli.here(*arguments)
        assert (result.code, message in result.err) == (2, True), result.text


def test_export_writes_numbers_and_pictures(cli: CommandLine, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", [0.5, 0.6])
    result = cli.here("export", run, "--csv", "--figures", tmp_path / "figures")
    assert result.code == 0
    assert (run / "csv/learning-curves.csv").is_file()
    assert {file.suffix for file in (tmp_path / "figures").iterdir()} == {".svg", ".png"}
    assert cli.here("export", run, "--csv", "--out", tmp_path / "elsewhere").code == 0
    assert (tmp_path / "elsewhere/rounds.csv").is_file()


def test_watch_serves_until_it_is_interrupted(cli: CommandLine, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", [0.5], rounds=2)
    with cli.forked("watch", run, "--no-open") as process:
        end = time.monotonic() + ENOUGH
        while (address := re.search(r"http://127\.0\.0\.1:\d+/", process.out)) is None:
            assert process.poll() is None, process.err
            assert time.monotonic() < end
            time.sleep(0.01)
        with urllib.request.urlopen(address[0], timeout=60) as answer:
            assert "1 of 2 rounds" in answer.read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait().code == 0
