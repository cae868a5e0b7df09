"""A record as named numbers, by hand."""

from __future__ import annotations

import math
from pathlib import Path

from fedfuse.records.record import RoundRecord
from fedfuse.tracking.scalars import parameters, scalars, tag


def test_a_record_by_hand() -> None:
    record = RoundRecord(
        round=3,
        cohort=[0, 2, 5],
        test_accuracy=0.5,
        test_loss=math.nan,
        models={"resnet8+head128": {"accuracy": 0.5, "loss": math.inf}},
        params_up=7,
        params_down=8,
        bytes_up=28,
        bytes_down=32,
        seconds={"local": 1.5},
        validation_accuracy=0.25,
        clients={"0": {"examples": 10, "distance": 1.0}, "2": {"examples": 20, "distance": 4.0}},
        memory={"server": 1024},
        rejected={"5": "sent nothing"},
        facts={
            "teachers": 2,
            "warning": "text",
            "clients": {"mean": 0.75, "confidence": {"right": [1, 2]}},
            "agreement": {"0": 0.2, "2": 0.4},
            "students": {"mlp:8": {"loss": {"first": 2.0, "last": None}}},
        },
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
        "agreement/mean": (0.2 + 0.4) / 2,
        "students/mlp:8/loss/first": 2.0,
    }


def test_settings_by_hand(tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text(
        'name = "x"\n[local]\nlr = 0.1\nstragglers = false\nmilestones = [0.5]\n[models.clients]\n"mlp:8" = 2.0\n'
    )
    assert parameters(tmp_path) == {
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
