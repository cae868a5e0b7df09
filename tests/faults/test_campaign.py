"""A part of the campaign of faults, with a fixed seed: faults are told, nothing is lost, nothing is a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import campaign
from tests.faults.tally import LostError, Tally, WrongError

LEAST = {
    "kills": 80, "full-disks": 90, "run-directories": 200, "caches": 600, "sweeps": 40, "uploads": 3000,
    "packed-uploads": 1500, "weights": 60, "settings": 500, "data": 80, "logit-caches": 40, "students": 30,
    "hugging-face-folders": 30,
}  # fmt: skip


@pytest.mark.parametrize("kind", campaign.KINDS)
def test_no_fault_is_wrong_in_silence(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDFUSE_CACHE", str(tmp_path))
    tally = campaign.KINDS[kind](1, 1, lambda: None)
    assert not tally.bad, "\n".join(tally.cases[:5])
    assert tally.tried >= LEAST[kind]


def test_every_kind_is_counted_by_how_it_ended() -> None:
    tally = Tally("faults")
    for error in (None, WrongError("another model"), LostError("round 3"), ValueError("no")):
        with tally.trying("a fault"):
            if error is not None:
                raise error
    assert (tally.harmless, tally.wrong, tally.lost, tally.tracebacks) == (1, 1, 1, 1)
    assert (tally.tried, tally.bad) == (4, 3)
    assert [case.partition(":")[0] for case in tally.cases] == ["wrong", "lost", "traceback"]
