"""The scripts of `benchmarks/papers` at a tiny size: they end, and write what they say."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import fedfuse
from fedfuse.records.observer import RunInfo
from fedfuse.records.record import RoundRecord
from fedfuse.runs.run import run

SCRIPTS = Path(__file__).parents[2] / "benchmarks" / "papers"


def test_uploads_writes_its_results_and_picture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On the digits instead of CIFAR-10: each format is as much smaller as it should be."""
    monkeypatch.syspath_prepend(SCRIPTS)
    uploads = importlib.import_module("uploads")
    digits = {"data.source": "digits", "data.pool.kind": "split", "data.pool.size": 128,
              "run.fraction": 0.05, "run.workers": 1}  # fmt: skip
    uploads.main(["--seeds", "1", "--rounds", "1", "--epochs", "1", "--out", str(tmp_path)], digits)
    assert (tmp_path / "uploads.png").stat().st_size > 100
    sizes = json.loads((tmp_path / "uploads.json").read_text())["megabytes a client and round"]
    smaller = {name: sizes["float32"] / size for name, size in sizes.items()}
    assert smaller["bfloat16"] == pytest.approx(2, abs=0.1)
    assert 3.7 < smaller["int8"] < 4
    assert smaller["1bit"] > 16


def test_released_statistics_are_those_of_the_released_fedavg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A run is stopped after its first round; the second, measured both ways, gives what two runs give."""
    monkeypatch.syspath_prepend(SCRIPTS)
    released = importlib.import_module("released_statistics")
    # Of the statistics that a client starts with, 100 steps leave 0.9^100 = 3e-5.
    settings = {"models.clients": "resnet8", "data.pool.kind": "split", "data.pool.size": 128, "local.steps": 100,
                "local.batch_size": 8, "run.rounds": 2, "run.fraction": 0.2, "run.workers": 1}  # fmt: skip
    made = fedfuse.load("digits", settings)
    fedavg, feddf = tmp_path / "fedavg", tmp_path / "feddf"
    with pytest.raises(KeyboardInterrupt):
        run(made, fedavg, observers=[StopsAfter(1)])
    released.main([str(fedavg)])
    (line,) = [json.loads(line) for line in (fedavg / "released.jsonl").read_text().splitlines()]
    last = run(made.with_settings({"algorithm.buffers": "last"}), tmp_path / "last").final
    assert (line["round"], line["last client's"]) == (2, last.test_accuracy)
    assert line["averaged"] != last.test_accuracy

    run(made.with_settings({"algorithm": {"name": "feddf", "steps": 2}, "local.steps": 1}), feddf)
    drawn = released.series(fedavg, feddf)
    assert drawn["FedAvg, last client's statistics"] == {2: last.test_accuracy}
    assert [list(drawn[name]) for name in ("FedAvg, averaged statistics", "FedDF", "FedDF's ensemble")] == [[1, 2]] * 3
    released.main([str(fedavg), "--beside", str(feddf), "--out", str(tmp_path)])
    assert (tmp_path / "released-statistics.png").stat().st_size > 100


@pytest.mark.parametrize("missing", [[], ["--beside", "elsewhere"]])
def test_released_statistics_says_which_run_is_missing(
    missing: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    with pytest.raises(SystemExit, match=r"error: .*nowhere"):
        importlib.import_module("released_statistics").main([str(tmp_path / "nowhere"), *missing])


class StopsAfter:
    """An observer that interrupts a run after a round."""

    def __init__(self, number: int) -> None:
        self.number = number

    def begin(self, run: RunInfo, history: Sequence[RoundRecord]) -> None:
        pass

    def round(self, record: RoundRecord) -> None:
        if record.round == self.number:
            raise KeyboardInterrupt

    def end(self, history: Sequence[RoundRecord]) -> None:
        pass
