"""`run.evaluate_every`: fewer evaluations, the same models, and no accuracy where nothing was evaluated."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import fedfuse
from fedfuse.config.named import ConfigError
from fedfuse.records.statistics import Row
from fedfuse.records.stored import StoredRun
from fedfuse.runs.progress import Lines
from fedfuse.runs.run import Run
from fedfuse.terminal.tables import of_comparison, of_run
from fedfuse.testing import all_bits
from tests.records.test_observer import SMALL, Notes

EVERY_2 = {"run.rounds": 5, "run.workers": 1, "run.evaluate_every": 2}


@pytest.fixture(scope="module")
def thinned(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fedfuse.run(fedfuse.load(SMALL, EVERY_2), tmp_path_factory.mktemp("thinned"))


def scores(run: Run) -> list[tuple[float | None, float | None, float | None]]:
    return [(r.test_accuracy, r.test_loss, r.validation_accuracy) for r in run.history]


def test_every_second_round_and_the_last_are_evaluated_and_no_bit_of_the_models_moves(
    thinned: Run, tmp_path: Path
) -> None:
    whole = fedfuse.run(fedfuse.load(SMALL, {**EVERY_2, "run.evaluate_every": 1}), tmp_path)
    assert all_bits(thinned.models) == all_bits(whole.models)
    nothing = (None, None, None)
    assert scores(thinned) == [each if i in (2, 4, 5) else nothing for i, each in enumerate(scores(whole), 1)]
    assert [bool(record.models) for record in thinned.history] == [False, True, False, True, True]
    assert ["evaluate" in record.seconds for record in thinned.history] == [False, True, False, True, True]
    assert [record.facts for record in thinned.history] == [record.facts for record in whole.history]
    assert thinned.best.test_accuracy == max(scores(whole)[i - 1][0] or 0 for i in (2, 4, 5))


def test_a_run_that_stops_after_a_round_without_evaluation_resumes_to_the_same_records(
    thinned: Run, tmp_path: Path
) -> None:
    experiment = fedfuse.load(SMALL, EVERY_2)
    with pytest.raises(RuntimeError, match="enough"):
        fedfuse.run(experiment, tmp_path, observers=[Notes(stop_after=3)])
    evaluation = StoredRun.open(tmp_path).evaluation
    assert evaluation is not None
    assert evaluation.round == 2  # that of round 3 does not exist
    assert fedfuse.report(tmp_path).exists()
    resumed = fedfuse.run(experiment, tmp_path, resume=True)
    assert (scores(resumed), all_bits(resumed.models)) == (scores(thinned), all_bits(thinned.models))
    assert (tmp_path / "evaluation.json").read_bytes() == (thinned.path / "evaluation.json").read_bytes()


def test_what_is_printed_says_what_was_not_evaluated(thinned: Run) -> None:
    output = StringIO()
    console = Console(width=150, file=output)
    lines = Lines(console)
    lines.begin("title", 5, [])
    for record in thinned.history[:2]:
        lines.round_ends(record)
    console.print(of_run(thinned))
    row = Row("fedavg", [thinned])
    console.print(of_comparison(fedfuse.load(SMALL, EVERY_2), [row, row], 0.99, thinned.path))
    text = output.getvalue()
    assert "round 1/5  not evaluated  clients 3/3" in text
    assert f"round 2/5  accuracy {thinned.history[1].test_accuracy:.4f}" in text
    assert "5 rounds, evaluated every 2 and after the last, 1 seed" in text
    assert "> 5" in text


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "often"])
def test_a_number_of_rounds_is_a_whole_one(value: object) -> None:
    with pytest.raises(ConfigError, match=r"run\.evaluate_every"):
        fedfuse.load(SMALL, {"run.evaluate_every": value})
