"""For other programs: --json prints one object per line with the documented keys, --quiet nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fedfuse.algorithms import ALGORITHMS
from tests.command_line import ROOT, CommandLine
from tests.faults.disk import tiny

PAGE = ROOT / "docs/guides/scripts.md"


def documented() -> dict[str, set[str]]:
    """The keys of each kind, as the guide lists them."""
    rows = re.findall(r"^\| `(\w+)` \| [^|]* \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {kind: {"kind", *re.findall(r"`(\w+)`", keys)} for kind, keys in rows}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scripts") / "tiny.toml"
    experiment = tiny("fedavg", rounds=2).with_settings({"data.validation": 0.2, "name": "tiny"})
    path.write_text(experiment.toml(), encoding="utf-8")
    return path


def objects(cli: CommandLine, *words: str | Path) -> list[dict[str, Any]]:
    result = cli.here(*words, "--json")
    assert (result.code, result.err) == (0, "")
    return [json.loads(line) for line in result.out.splitlines()]


def check_keys(each: Mapping[str, Any]) -> None:
    optional = {"target", "rounds_to_target"} if each["kind"] == "result" else set()
    assert documented()[each["kind"]] - optional <= each.keys() <= documented()[each["kind"]]


def kinds(all_objects: list[dict[str, Any]]) -> list[str]:
    for each in all_objects:
        check_keys(each)
    return [each["kind"] for each in all_objects]


def test_a_run_is_rounds_and_a_result(cli: CommandLine, file: Path, tmp_path: Path) -> None:
    lines = objects(cli, "run", file, "--out", tmp_path / "run")
    assert kinds(lines) == ["round", "round", "run", "report"]
    *rounds, run, report = lines
    records = [json.loads(line) for line in (tmp_path / "run/rounds.jsonl").read_text().splitlines()]
    assert [each["test_accuracy"] for each in rounds] == [record["test_accuracy"] for record in records]
    assert run["final_accuracy"] == rounds[-1]["test_accuracy"]
    assert run["path"] == str(tmp_path / "run")
    assert Path(report["path"]).is_file()


def test_a_comparison_is_a_result_per_algorithm(cli: CommandLine, file: Path, tmp_path: Path) -> None:
    words = ("compare", file, "-a", "fedavg", "-a", "fedprox", "--seeds", "2", "--no-report", "--out", tmp_path)
    first = objects(cli, *words, "--target", "0.01")
    assert kinds(first) == 4 * ["round", "round", "run"] + 2 * ["result"]
    assert [each["run"] for each in first if each["kind"] == "run"] == [1, 2, 3, 4]
    assert [each["algorithm"] for each in first[-2:]] == ["fedavg", "fedprox"]
    assert first[-1]["rounds_to_target"] == [1, 1]
    # Finished already, so that no round is run; with --quiet, rounds would be left out in any case.
    assert kinds(objects(cli, *words, "--quiet")) == 4 * ["run"] + 2 * ["result"]


def test_a_sweep_is_its_trials(cli: CommandLine, file: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    words = ("sweep", file, "-p", "local.lr=0.01..0.1", "--trials", "2", "--no-report", "--out", tmp_path)
    lines = objects(cli, *words, "-q")
    assert kinds(lines) == ["run", "run", "trial", "trial", "sweep"]
    assert lines[-1]["best"] in (0, 1)
    assert lines[2]["parameters"].keys() == {"local.lr"}


def test_commands_that_train_nothing(cli: CommandLine, file: Path) -> None:
    listed = objects(cli, "list")
    assert set(kinds(listed)) == {"entry"}
    assert {each["name"] for each in listed if each["of"] == "algorithms"} >= ALGORITHMS.keys()
    (shown,) = objects(cli, "show", "fedavgm")
    assert kinds([shown]) == ["algorithm"]
    assert shown["settings"]["beta"] == {"default": 0.9, "required": False, "part": None}
    (feddf,) = objects(cli, "show", "feddf")
    assert feddf["settings"]["steps"] == {"default": 10_000, "required": False, "part": "distiller"}
    parts = objects(cli, "show", "median")
    assert kinds(parts) == ["part", "part"]
    assert {part["of"] for part in parts} == {"aggregate", "target"}
    (checked,) = objects(cli, "check", file)
    assert kinds([checked]) == ["experiment"]
    assert (checked["clients"], checked["pool"]) == (2, 40)
    clients = objects(cli, "partition", file)
    assert kinds(clients) == ["client", "client"]
    assert all(sum(each["counts"].values()) == each["examples"] for each in clients)


def test_an_error_is_the_usual_one(cli: CommandLine) -> None:
    result = cli.here("run", "digit", "--json")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error ")


def test_quiet_prints_nothing(cli: CommandLine, file: Path, tmp_path: Path) -> None:
    result = cli.here("run", file, "--quiet", "--out", tmp_path / "run")
    assert (result.code, result.text) == (0, "")
    assert (tmp_path / "run/report.html").is_file()
