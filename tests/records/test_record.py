"""The record of a round: strict JSON, one object per line, and nothing lost to a crash or a diverged loss."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from fedfuse.facts import Facts, FirstAndLast, Score, Student
from fedfuse.records import record
from fedfuse.records.record import RoundRecord
from fedfuse.types import FedfuseError


def a_record(round: int = 1, loss: float = 0.25) -> RoundRecord:
    return RoundRecord(
        round=round,
        cohort=[0, 2],
        test_accuracy=0.5,
        test_loss=loss,
        models={"mlp:8": Score(0.5, loss)},
        params_up=10,
        params_down=20,
        bytes_up=40,
        bytes_down=80,
        seconds={"local": 0.5},
        rejected={"2": 'sent "nothing"\n'},
        note=None,
        facts=Facts(students={"mlp:8": Student(3, FirstAndLast(2.0, 1.0))}, own={"layer": [1, 2]}),
    )


def test_the_line_has_the_keys_that_are_promised() -> None:
    fields = json.loads(a_record().line())
    promised = {
        "round", "cohort", "test_accuracy", "test_loss", "params_up", "params_down", "bytes_up", "bytes_down",
        "seconds", "rejected",
    }  # fmt: skip
    assert promised <= fields.keys()
    assert "\n" not in a_record().line()


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "rounds.jsonl"
    written = [a_record(round) for round in (1, 2, 3)]
    for one in written:
        record.append(file, one)
    assert record.read(file) == written


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_diverged_is_null_on_file_and_a_number_again_when_read(tmp_path: Path, loss: float) -> None:
    # NaN is no JSON: other readers would stop at it. None would not be a number to whoever prints the record.
    file = tmp_path / "rounds.jsonl"
    record.append(file, a_record(loss=loss))
    assert json.loads(file.read_text(), parse_constant=lambda c: pytest.fail(f"{c} in JSON"))["test_loss"] is None
    (read,) = record.read(file)
    assert math.isnan(read.test_loss)
    assert math.isnan(read.models["mlp:8"].loss)


def test_a_round_that_was_not_evaluated_has_no_loss_rather_than_one_that_diverged() -> None:
    thinned = replace(a_record(), test_accuracy=None, test_loss=None, models={})
    assert RoundRecord.parse(thinned.line()) == thinned
    assert not thinned.evaluated
    assert record.accuracies([thinned, a_record(2)]) == {2: 0.5}


def test_a_line_that_a_crash_cut_short_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "rounds.jsonl"
    record.append(file, a_record(1))
    whole = file.read_text()
    for length in range(len(whole) - 1):
        file.write_text(whole + whole[:length])
        assert [r.round for r in record.read(file)] == [1]


@pytest.mark.parametrize("line", ["not json", "[]", "{}", '{"test_loss": 1}', '"text"', "null"])
def test_a_line_that_is_no_record_is_an_error_that_names_the_file(tmp_path: Path, line: str) -> None:
    file = tmp_path / "rounds.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(FedfuseError, match=r"rounds\.jsonl, line 1: not a record of a round"):
        record.read(file)


def test_a_file_that_is_not_there_has_no_rounds(tmp_path: Path) -> None:
    assert record.read(tmp_path / "rounds.jsonl") == []


def test_rewriting_replaces_all_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "rounds.jsonl"
    for round in (1, 2, 3):
        record.append(file, a_record(round))
    record.rewrite(file, [a_record(1).line(), replace(a_record(2), note="again").line()])
    assert [(r.round, r.note) for r in record.read(file)] == [(1, None), (2, "again")]
    assert list(tmp_path.iterdir()) == [file]


def test_a_record_that_cannot_be_written_says_where_it_still_is(tmp_path: Path) -> None:
    with pytest.raises(FedfuseError, match=r"could not be written.*in the checkpoint"):
        record.append(tmp_path / "no folder" / "rounds.jsonl", a_record())


@pytest.mark.parametrize(
    ("order", "line"),
    [([1, 3], 2), ([1, 1, 2], 2), ([2, 1], 1), ([1, 2, 2], 3), ([2], 1)],
    ids=["missing", "doubled", "shuffled", "last doubled", "first missing"],
)
def test_rounds_in_another_order_are_an_error_that_names_the_line(tmp_path: Path, order: list[int], line: int) -> None:
    file = tmp_path / "rounds.jsonl"
    record.rewrite(file, [a_record(round).line() for round in order])
    with pytest.raises(FedfuseError, match=rf"rounds\.jsonl, line {line}: holds round"):
        record.read(file)
