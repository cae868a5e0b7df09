"""A record as named numbers, by hand."""

from __future__ import annotations

import math

from fedfuse.facts import ClientQuality, ConfidenceBins, Facts, FirstAndLast, Score, Student
from fedfuse.records.record import ClientRecord, RoundRecord
from fedfuse.tracking.scalars import parameters, scalars, tag


def test_a_record_by_hand() -> None:
    record = RoundRecord(
        round=3,
        cohort=[0, 2, 5],
        test_accuracy=0.5,
        test_loss=math.nan,
        models={"resnet8+head128": Score(0.5, math.inf)},
        params_up=7,
        params_down=8,
        bytes_up=28,
        bytes_down=32,
        seconds={"local": 1.5},
        validation_accuracy=0.25,
        clients={"0": ClientRecord(10, 1.0), "2": ClientRecord(20, 4.0)},
        memory={"server": 1024},
        rejected={"5": "sent nothing"},
        facts=Facts(
            teachers=2,
            warning="text",
            clients=ClientQuality(0.75, 0.5, 1.0, ConfidenceBins([1, 2], [0, 0], [1.0, 1.5])),
            agreement={"0": 0.2, "2": 0.4},
            students={"mlp:8": Student(3, FirstAndLast(2.0, math.nan))},
            own={"rows": 7, "labels": ["a"]},
        ),
    )
    assert scalars(record) == {
        "test/accuracy": 0.5,
        "validation/accuracy": 0.25,
        "models/resnet8-head128/accuracy": 0.5,
        "updates/accepted": 2.0,
        "updates/rejected": 1.0,
        "updates/examples/mean": 15.0,
        "updates/distance/mean": 2.5,
        "params/up": 7.0,
        "params/down": 8.0,
        "bytes/up": 28.0,
        "bytes/down": 32.0,
        "seconds/local": 1.5,
        "memory/server": 1024.0,
        "teachers": 2.0,
        "clients/mean": 0.75,
        "clients/worst": 0.5,
        "clients/best": 1.0,
        "agreement/mean": (0.2 + 0.4) / 2,
        "students/mlp:8/steps": 3.0,
        "students/mlp:8/loss/first": 2.0,
        "rows": 7.0,
    }


def test_settings_by_hand() -> None:
    local = {"lr": 0.1, "stragglers": False, "milestones": [0.5]}
    assert parameters({"name": "x", "local": local, "models": {"clients": {"mlp:8": 2.0}}}) == {
        "name": "x",
        "local.lr": 0.1,
        "local.stragglers": False,
        "local.milestones": "[0.5]",
        "models.clients.mlp:8": 2.0,
    }


def test_names_that_every_tracker_takes() -> None:
    assert [tag(name) for name in ("mlp:64-32", "mlp:8|mlp:16", "hf:../there", "+")] == [
        "mlp:64-32",
        "mlp:8-mlp:16",
        "hf:..-there",
        "-",
    ]


def test_a_round_that_was_not_evaluated_has_no_scores() -> None:
    names = scalars(RoundRecord(1, [0], None, None, {}, 7, 8, 28, 32, {"local": 1.5}))
    assert not [name for name in names if name.startswith(("test", "validation", "models"))]
