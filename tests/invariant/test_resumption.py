"""`kill -9` at any instant, a damaged checkpoint, a full disk: the run goes on to the same bits, or says why not."""

from __future__ import annotations

import errno
import os
import random
import re
import resource
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import fedfuse
from tests.command_line import ENOUGH, SMALL, CommandLine, models_of, rounds_of
from tests.faults.disk import killed_before_step, tiny

KILLED = (*SMALL, "-r", "9", "--set", "local.epochs=12")


def until(condition: Callable[[], bool], seconds: float = ENOUGH) -> bool:
    """Wait for it; False if it has not come true by then."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def lines(run: Path) -> int:
    file = run / "rounds.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


# By the command line, at random moments.


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("uninterrupted") / "run"
    result = CommandLine().here(*KILLED, "--workers", "1", "--out", run)
    assert result.code == 0, result.text
    return run


@pytest.mark.parametrize(("workers", "group", "seed"), [((1,), False, 1), ((2, 1), True, 2), ((1, 2), False, 3)])
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(
    cli: CommandLine, uninterrupted: Path, workers: tuple[int, ...], group: bool, seed: int, tmp_path: Path
) -> None:
    """Each attempt is killed some time after its first step: the moment is drawn, the outcome must not depend on it."""
    draw, run, kills = random.Random(seed), tmp_path / "run", 0
    for attempt in range(2):
        count = str(workers[attempt % len(workers)])
        with cli.forked(*KILLED, "--workers", count, "--out", run, "--resume") as process:
            before = lines(run)
            rounds, delay = draw.choice([0, 1, 2]), draw.uniform(0, 0.4)
            reached = until(
                lambda before=before, rounds=rounds, process=process: (
                    process.poll() is not None or ((run / "experiment.toml").exists() and lines(run) >= before + rounds)
                )
            )
            assert reached
            time.sleep(delay)
            if process.poll() is None:
                kills += 1
                (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)
            process.wait()
    assert kills == 2
    result = cli.here(*KILLED, "--workers", "1", "--out", run, "--resume")
    assert result.code == 0, result.text
    assert models_of(run) == models_of(uninterrupted)
    assert rounds_of(run) == rounds_of(uninterrupted)
    assert [r["round"] for r in rounds_of(run)] == list(range(1, 10))
    # Nothing that a killed process had under way is left behind, least of all a copy of the data.
    assert {p.name for p in run.iterdir()} == {p.name for p in uninterrupted.iterdir()}
    assert {p.name for p in (run / "models").iterdir()} == {p.name for p in (uninterrupted / "models").iterdir()}


# In a fork of this process; before every other step on the disk, tests/faults does it.


def test_a_kill_while_workers_are_given_the_data_leaves_no_copy_behind(tmp_path: Path) -> None:
    clean = fedfuse.run(tiny(), tmp_path / "clean")
    out = tmp_path / "killed"
    assert killed_before_step(1, out, workers=2)
    fedfuse.run(tiny(), out, resume=True)
    assert models_of(out) == models_of(clean.path)
    assert {p.name for p in out.iterdir()} == {p.name for p in clean.path.iterdir()}


# Damaged checkpoints.


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    return fedfuse.run(tiny(), tmp_path / "finished").path


def newest_first(run: Path) -> list[Path]:
    return sorted((run / "checkpoint").glob("round-*.safetensors"), reverse=True)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def test_a_truncated_newest_checkpoint_costs_one_round_and_is_told(cli: CommandLine, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert cli.here(*SMALL, "--workers", "1", "--out", run).code == 0
    models, rounds = models_of(run), rounds_of(run)
    shutil.rmtree(run / "models")
    newest = newest_first(run)[0]
    truncate(newest)
    result = cli.here(*SMALL, "--workers", "1", "--out", run, "--resume")
    assert result.code == 0
    assert f"warning: checkpoint {newest.name}: its SHA-256" in result.out
    assert "3 already finished" in result.out
    assert models_of(run) == models
    assert rounds_of(run) == rounds
    assert (run / "checkpoint" / f"{newest.name}.damaged").exists()


def test_when_all_checkpoints_are_damaged_the_record_is_not_thrown_away(finished: Path) -> None:
    rounds = rounds_of(finished)
    for file in newest_first(finished):
        truncate(file)
    # Asked again, it must not take the empty folder for a run that never began.
    for _ in range(2):
        with pytest.raises(fedfuse.FedfuseError, match=r"checkpoint: .*another --out"):
            fedfuse.run(tiny(), finished, resume=True)
        assert rounds_of(finished) == rounds


def test_a_finished_run_resumes_to_itself(finished: Path) -> None:
    models, rounds = models_of(finished), (finished / "rounds.jsonl").read_bytes()
    fedfuse.run(tiny(), finished, resume=True)
    assert models_of(finished) == models
    assert (finished / "rounds.jsonl").read_bytes() == rounds


def test_a_record_that_is_garbled_stops_the_run_and_is_left_alone(finished: Path) -> None:
    garbled = b"garbled\n" + (finished / "rounds.jsonl").read_bytes()
    (finished / "rounds.jsonl").write_bytes(garbled)
    with pytest.raises(fedfuse.FedfuseError, match=r"rounds\.jsonl, line 1: is not as it was written"):
        fedfuse.run(tiny(), finished, resume=True)
    assert (finished / "rounds.jsonl").read_bytes() == garbled


# A full disk.


def at_most(size: int) -> Callable[[], None]:
    """No file may grow beyond this: writing on fails as on a full disk, with another number."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


HOARDING = (*SMALL, "--set", "algorithm.name=tests.doubles:hoarding")


@pytest.fixture(scope="module")
def never_full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("never-full") / "run"
    assert CommandLine().here(*HOARDING, "--workers", "1", "--out", run).code == 0
    return run


@pytest.mark.parametrize(
    ("workers", "limit", "rounds"),
    [
        (1, 90_000, 1),  # the first checkpoint fits, those after it hold what more clients keep and do not
        (2, 30_000, 0),  # the data that workers share does not fit
        (2, 90_000, 1),
    ],
)
def test_a_full_disk_is_a_clear_error_and_loses_nothing(
    cli: CommandLine, never_full: Path, workers: int, limit: int, rounds: int, tmp_path: Path
) -> None:
    command = (*HOARDING, "--workers", str(workers))
    with cli.forked(*command, "--out", tmp_path / "full", before=at_most(limit)) as process:
        full = process.wait()
    assert full.code == 2, full.text
    assert "Traceback" not in full.text
    assert re.search("could not be written|File too large|No space left|requested and .* written", full.err)
    assert ("continue with --resume" if rounds else "give the same command again") in full.err
    assert lines(tmp_path / "full") == rounds
    freed = cli.here(*command, "--out", tmp_path / "full", "--resume")
    assert freed.code == 0, freed.text
    assert models_of(tmp_path / "full") == models_of(never_full)
    assert rounds_of(tmp_path / "full") == rounds_of(never_full)


# What may not be resumed.


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"local.lr": 0.5}, "local.lr: 0.1 then, 0.5 now"),
        ({"run.seed": 3}, "run.seed: 0 then, 3 now"),
        ({"run.rounds": 6}, "run.rounds: 5 then, 6 now"),
        ({"run.threads": 2}, "run.threads: 1 then, 2 now"),
        ({"algorithm.beta": 0.5}, "algorithm.beta: 0.9 then, 0.5 now"),
        ({"algorithm.name": "fedavg"}, "algorithm.beta: 0.9 then, not set now"),
        ({"models.clients": "mlp:4"}, "models.clients: 'tests.doubles:linear' then, 'mlp:4' now"),
        ({"run.max_norm": 2.0}, "run.max_norm: not set then, 2.0 now"),
    ],
)
def test_another_configuration_is_refused_with_the_difference_shown(
    finished: Path, change: dict[str, object], shown: str
) -> None:
    before = {p: p.read_bytes() for p in finished.rglob("*") if p.is_file()}
    with pytest.raises(fedfuse.FedfuseError, match="cannot be resumed with other settings") as refused:
        fedfuse.run(tiny().with_settings(change), finished, resume=True)
    assert shown in str(refused.value)
    assert {p: p.read_bytes() for p in finished.rglob("*") if p.is_file()} == before


def test_other_data_is_refused_even_under_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tiny().with_settings({"data.source": "tests.doubles:own_data"})
    fedfuse.run(made, tmp_path / "run")
    fedfuse.run(made, tmp_path / "run", resume=True)
    monkeypatch.setenv("FEDFUSE_TEST_DATA_SEED", "1")
    with pytest.raises(fedfuse.FedfuseError, match=r"provenance\.data: '[0-9a-f]{64}' then, '[0-9a-f]{64}' now"):
        fedfuse.run(made, tmp_path / "run", resume=True)


def test_the_command_line_refuses_with_exit_code_2(cli: CommandLine, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert cli.here(*SMALL, "--workers", "1", "--out", run).code == 0
    result = cli.here(
        *SMALL, "--workers", "1", "--out", run, "--resume", "--set", "local.lr=0.5", "--set", "run.threads=2"
    )
    assert result.code == 2
    assert "local.lr: 0.05 then, 0.5 now" in result.err
    assert "run.threads: 1 then, 2 now" in result.err
    assert "--out" in result.err


def test_the_number_of_workers_and_the_name_may_change(finished: Path) -> None:
    models = models_of(finished)
    fedfuse.run(tiny().with_settings({"run.workers": 2, "name": "other"}), finished, resume=True)
    assert models_of(finished) == models


# Who else is there.


def gone(pid: int) -> bool:
    """Ended: no longer in the table, or only waiting there for whoever adopted it to take note."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_worker_does_not_outlive_a_killed_run_for_long(cli: CommandLine, tmp_path: Path) -> None:
    """Its client would train for another minute. Orphans pile up where runs are killed, and write into the next."""
    pids = tmp_path / "pids"
    pids.mkdir()
    command = (*SMALL, "--set", "algorithm.name=tests.doubles:lingering", "--workers", "2", "--out", tmp_path / "run")
    with cli.forked(*command, env={"FEDFUSE_TEST_PIDS": str(pids)}) as process:
        both = until(lambda: process.poll() is not None or len(list(pids.iterdir())) == 2)
        workers = [int(p.name) for p in pids.iterdir()]
    assert both
    assert len(workers) == 2
    assert process.pid not in workers
    try:
        assert until(lambda: all(gone(pid) for pid in workers), seconds=15)
    finally:
        for pid in workers:
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)


def test_a_run_in_progress_refuses_a_second_process_and_can_be_interrupted(cli: CommandLine, tmp_path: Path) -> None:
    gate, run = tmp_path / "gate", tmp_path / "run"
    gate.mkdir()
    command = (*SMALL, "--set", "algorithm.name=tests.doubles:waiting", "--workers", "1", "--out", run)
    with cli.forked(*command, env={"FEDFUSE_TEST_GATE": str(gate)}) as process:
        assert until(lambda: process.poll() is not None or (gate / "begun").exists())
        second = cli.here(*command, "--resume")
        process.send_signal(signal.SIGINT)
        result = process.wait()
    assert second.code == 2
    assert f"{run} is in use by another process" in second.err
    assert result.code == 130
    assert "continue `run` and `flower up` with --resume" in result.text
    assert "Traceback" not in result.text


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "No space left on device); the previous content is unchanged: make room"),
        (errno.EDQUOT, "make room"),
        (errno.EACCES, "Permission denied); the previous content is unchanged: get write permission"),
        (errno.EROFS, "get write permission"),
        (errno.EIO, "Input/output error); the previous content is unchanged: look into the cause"),
    ],
)
def test_only_a_full_disk_is_called_full(
    number: int, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fedfuse.run(tiny(rounds=1), tmp_path / "sound")

    def fails(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(fedfuse.FedfuseError) as refused:
        fedfuse.run(tiny(), tmp_path / "run")
    assert remedy in str(refused.value)
    assert str(refused.value).endswith("no round was finished: give the same command again")
