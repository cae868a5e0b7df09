"""One client's finite weights may cost that client, never the run; and whoever stands out is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fedfuse
from fedfuse.facts import Facts
from fedfuse.records.record import ClientRecord
from fedfuse.safeguard import suspects, with_warnings
from tests.faults.uploads import Scripted, scaled

HOSTILE = 7


def twenty_clients(algorithm: dict[str, object], server: str | None = None, rounds: int = 2) -> fedfuse.Experiment:
    return fedfuse.Experiment(
        data={"source": "digits", "pool": {"kind": "split", "size": 0.2}},
        partition={"clients": 20},
        models={"clients": "mlp:16", **({"server": server} if server else {})},
        local={"epochs": 1, "batch_size": 16},
        algorithm=algorithm,
        run={"rounds": rounds, "workers": 1},
    )


@pytest.mark.parametrize("factor", [1e3, 1e20])
def test_one_of_twenty_clients_does_not_end_a_fed_et_run(factor: float, tmp_path: Path) -> None:
    """Its last layer times 1,000 once made the loss infinite in step 2 of round 1, and of every attempt to resume."""
    unclipped = {"name": "sgd", "lr": 0.5, "steps": 128, "batch_size": 64, "momentum": 0.0}
    made = twenty_clients({"name": "fed-et", "distiller": unclipped}, "mlp:64-32")
    run = fedfuse.run(made, tmp_path, engines=lambda *_: (Scripted(HOSTILE, lambda u: scaled(u, factor, 2)), None))
    assert len(run.history) == 2
    for record in run.history:
        assert record.facts.warning is not None
        assert "the loss of distillation step" in record.facts.warning
        # Its start or the previous model, whichever is better: in these rounds both are near chance.
        assert re.search("the server keeps the (previous model|student's start)", record.facts.warning)
        assert f"suspected: client {HOSTILE} (moved" in record.facts.warning
    # Without that client in the next round, the run learns again: nothing is left of it.
    honest = fedfuse.run(made.with_settings({"algorithm.lr": 0.01, "run.rounds": 1}), tmp_path / "honest")
    assert honest.final.facts.warning is None


@pytest.mark.parametrize("factor", [1e3, 1e20])
def test_a_clipped_fed_et_server_learns_on_beside_such_a_client(factor: float, tmp_path: Path) -> None:
    """Gradients are clipped by default, so the same client no longer makes the loss infinite."""
    made = twenty_clients({"name": "fed-et", "lr": 0.5}, "mlp:64-32", rounds=1)
    run = fedfuse.run(made, tmp_path, engines=lambda *_: (Scripted(HOSTILE, lambda u: scaled(u, factor, 2)), None))
    assert not any(student.diverged for student in run.final.facts.students.values())
    assert (run.final.facts.warning or "").startswith(f"suspected: client {HOSTILE} (moved")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("feddf", {"steps": 50, "patience": 50}),
        ("v-distillation", {"epochs": 2}),
        ("fedbe", {"epochs": 60, "swa_start": 20}),
        ("one-shot", {"epochs": 2}),
    ],
)
def test_a_model_out_of_all_proportion_is_named_though_nothing_diverged(
    name: str, settings: dict[str, object], tmp_path: Path
) -> None:
    made = twenty_clients({"name": name, **settings}, rounds=1)
    run = fedfuse.run(made, tmp_path, engines=lambda *_: (Scripted(HOSTILE, lambda u: scaled(u, 1e3, 2)), None))
    warning = run.final.facts.warning or ""
    assert warning.endswith(")")
    assert f"suspected: client {HOSTILE} (moved" in warning
    assert "client 8" not in warning


def moved(*distances: float) -> dict[int, ClientRecord]:
    return {client: ClientRecord(10, distance) for client, distance in enumerate(distances)}


def test_suspects_stand_out_by_distance_or_else_by_agreement() -> None:
    assert suspects(moved(1, 1, 1, 9), {}) == "suspected: client 3 (moved 9, the median client 1)"
    alike = moved(1, 1, 1, 1)
    assert "client 2 (agrees with the ensemble on 10 %, the median client on 90 %)" in suspects(
        alike, {"0": 0.9, "1": 0.9, "2": 0.1, "3": 0.9}
    )
    # An ensemble that follows one client agrees with that one only.
    assert suspects(alike, {"0": 0.02, "1": 0.01, "2": 1.0, "3": 0.02}).startswith("suspected: client 2 (agrees")
    assert suspects(alike, {"0": 0.8, "1": 0.9}) == "no client stands out by distance or agreement"
    assert suspects({}, {}) == "no client stands out by distance or agreement"


def test_a_sound_round_has_no_warning() -> None:
    assert with_warnings(Facts(), moved(1, 2, 30)).warning is None
    assert with_warnings(Facts(), moved(1, 1, 101)).warning == "suspected: client 2 (moved 101, the median client 1)"
