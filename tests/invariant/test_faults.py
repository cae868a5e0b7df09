"""Clients that raise, run out of memory, answer with NaN or die, through a whole run with either engine."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedfuse
from fedfuse.runs.setup import load_federation, set_up
from fedfuse.testing import all_bits
from tests.command_line import CommandLine, models_of, rounds_of
from tests.doubles import LINEAR, failing, initial


def experiment(algorithm: str, **run: object) -> fedfuse.Experiment:
    return fedfuse.Experiment(
        data={"source": "synthetic", "examples": 90, "classes": 3, "shape": [4], "validation": 0},
        partition={"clients": 6},
        models={"clients": LINEAR},
        local={"epochs": 1, "batch_size": 8},
        algorithm={"name": algorithm},
        run={"rounds": 2, **run},
    )


RAISED = {
    "1": "ran out of memory in its local work",
    "2": "parameter weight is not finite",
}
DIED = {
    "3": "its worker process died: exit code 7",
    "4": "its worker process died: killed (signal 9), perhaps out of memory",
}


def raised(round: int) -> dict[str, str]:
    return {"0": f"failed in its local work: ValueError: round {round} was too much", **RAISED}


def test_without_workers_three_of_six_fail_and_the_other_three_are_the_model(tmp_path: Path) -> None:
    made = experiment("tests.doubles:three_raise", workers=1)
    run = fedfuse.run(made, tmp_path / "run")
    assert [r.rejected for r in run.history] == [raised(1), raised(2)]
    # The same three alone, round by round, by hand.
    ctx = set_up(made, load_federation(made)).ctx
    server, algorithm = initial(ctx), failing({})
    for number in (1, 2):
        now = ctx.at(number)
        updates = [algorithm.local(algorithm.brief(server, client, now), {}, now) for client in (3, 4, 5)]
        server, _ = algorithm.fuse(server, updates, now)
    assert all_bits(run.models) == all_bits(server.models)


def test_with_workers_two_more_die_and_the_record_names_them_all(tmp_path: Path) -> None:
    run = fedfuse.run(experiment("tests.doubles:five_fail", rounds=1, workers=2), tmp_path / "run")
    assert run.final.rejected == {**raised(1), **DIED}
    assert run.final.note is None


def test_below_the_quorum_every_round_leaves_the_model_and_says_so(tmp_path: Path) -> None:
    made = experiment("tests.doubles:three_raise", workers=1, quorum=4)
    run = fedfuse.run(made, tmp_path / "run")
    assert all_bits(run.models) == all_bits(initial(set_up(made, load_federation(made)).ctx).models)
    assert [r.note for r in run.history] == ["unchanged: 3 of 6 clients, the quorum is 4"] * 2
    at_quorum = fedfuse.run(experiment("tests.doubles:three_raise", workers=1, quorum=3), tmp_path / "at quorum")
    assert at_quorum.final.note is None
    assert models_of(at_quorum.path) != models_of(run.path)


def test_events_of_another_run_are_refused_before_training(tmp_path: Path) -> None:
    runs = [fedfuse.run(experiment("fedavg", rounds=1, workers=1, seed=seed), tmp_path / str(seed)) for seed in (0, 1)]
    (runs[0].path / "events.jsonl").write_bytes((runs[1].path / "events.jsonl").read_bytes())
    with pytest.raises(fedfuse.FedfuseError, match=r"events.jsonl: belongs to another run: restore the file"):
        fedfuse.run(experiment("fedavg", rounds=1, workers=1, seed=0), runs[0].path, resume=True)


def test_the_command_line_warns_of_each_and_goes_on(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text(experiment("tests.doubles:three_raise", workers=1, quorum=4).toml())
    result = cli.here("run", tmp_path / "e.toml", "--out", tmp_path / "run")
    assert result.code == 0
    assert "warning: round 1: client 0 failed in its local work: ValueError: round 1 was too much" in result.out
    assert "warning: round 2: unchanged: 3 of 6 clients, the quorum is 4" in result.out
    assert "clients 3/6" in result.out
    assert [len(r["rejected"]) for r in rounds_of(tmp_path / "run")] == [3, 3]
