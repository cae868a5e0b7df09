"""`fedfuse sweep`: chosen by validation data alone, stopped at any instant, gone on with to the same trials."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest

import fedfuse
from fedfuse.config.experiment import Experiment
from fedfuse.records import record
from fedfuse.records.observer import Observer, RunInfo
from fedfuse.runs.display import Display, Silent
from fedfuse.runs.run import Run
from fedfuse.sweeps import results, search
from fedfuse.sweeps import study as optuna_study
from fedfuse.sweeps.search import Median, sweep
from fedfuse.sweeps.space import Choice, Range, Space
from fedfuse.types import FedfuseError
from tests.command_line import ENOUGH, CommandLine, rounds_of

SMALL = Path(__file__).parents[1] / "small.toml"
SPACE = {"local.lr": "0.01..1:log", "local.epochs": "1..3", "local.optimizer": "sgd,adam"}
Score = Callable[[int, Experiment], float]  # of a trial's number and its settings


@pytest.fixture
def experiment() -> Experiment:
    return fedfuse.load(SMALL, {"run.workers": 1})


class Scripted:
    """In place of a run: a validation accuracy that is known, and a test accuracy that would choose the opposite."""

    def __init__(self, score: Score) -> None:
        self.score = score
        self.stop: dict[tuple[int, int], BaseException] = {}  # (trial, round) -> what happens after it, once

    def __call__(
        self,
        experiment: Experiment,
        out: Path,
        *,
        resume: bool,
        display: Display,
        observers: Sequence[Observer],
    ) -> Run:
        number = int(out.name[6:10])
        validation = self.score(number, experiment)
        out.mkdir(exist_ok=True)
        (out / "experiment.toml").touch()
        history = record.read(out / "rounds.jsonl")
        for observer in observers:
            observer.begin(RunInfo(out, experiment.resolved(), experiment.run.rounds), tuple(history))
        for round in range(len(history) + 1, experiment.run.rounds + 1):
            history.append(made := crafted(round, validation, _evaluated(round, experiment)))
            record.append(out / "rounds.jsonl", made)
            if (number, round) in self.stop:
                raise self.stop.pop((number, round))
            for observer in observers:
                observer.round(made)
        return Run(out, history, {})


def _evaluated(round: int, experiment: Experiment) -> bool:
    return round % experiment.run.evaluate_every == 0 or round == experiment.run.rounds


def crafted(round: int, validation: float, evaluated: bool) -> record.RoundRecord:
    if not evaluated:
        return record.RoundRecord(round, [0], None, None, {}, 0, 0, 0, 0, seconds={})
    return record.RoundRecord(
        round, [0], 1 - validation, 0.0, {}, 0, 0, 0, 0, seconds={}, validation_accuracy=validation
    )


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Score], Scripted]:
    def install(score: Score) -> Scripted:
        script = Scripted(score)
        monkeypatch.setattr(search, "run", script)
        return script

    return install


def bowl(number: int, experiment: Experiment) -> float:
    """Best at lr = 0.5 with one epoch."""
    return 1 / (1 + abs(experiment.local.lr - 0.5) + (experiment.local.epochs or 0))


def outcomes(folder: Path) -> list[dict[str, Any]]:
    trials: list[dict[str, Any]] = json.loads((folder / "trials.json").read_text())["trials"]
    return trials


# What it chooses by.


def test_the_median_and_the_ranking_see_validation_data_and_never_test_data(
    experiment: Experiment, scripted: Callable[[Score], Scripted], tmp_path: Path
) -> None:
    """Trial 3 has 0.3, and the median of 0.2, 0.6 and 0.4 is 0.4. By test accuracy (0.7) it would have gone on."""
    scripted(lambda number, _: [0.2, 0.6, 0.4, 0.3, 0.5][number])
    result = sweep(experiment, SPACE, trials=5, out=tmp_path, prune=Median(startup=3, warmup=1))
    assert [t.state for t in result.trials] == ["complete", "complete", "complete", "pruned", "complete"]
    assert [t.rounds for t in result.trials] == [4, 4, 4, 2, 4]  # the first round after the warm-up
    assert [t.validation for t in result.trials] == [0.2, 0.6, 0.4, 0.3, 0.5]
    assert result.best.number == 1
    assert [t.number for t in result.ranked] == [1, 4, 2, 0]


def test_nothing_is_pruned_without_pruning_nor_in_the_last_round(
    experiment: Experiment, scripted: Callable[[Score], Scripted], tmp_path: Path
) -> None:
    scripted(lambda number, _: [0.6, 0.5, 0.4][number])
    for name, prune in (("none", None), ("late", Median(startup=0, warmup=3))):
        result = sweep(experiment, SPACE, trials=3, out=tmp_path / name, prune=prune)
        assert {t.state for t in result.trials} == {"complete"}


def test_with_several_seeds_the_mean_counts(
    experiment: Experiment, scripted: Callable[[Score], Scripted], tmp_path: Path
) -> None:
    scripted(lambda number, made: (number + made.run.seed) / 10)
    result = sweep(experiment, SPACE, trials=2, out=tmp_path, seeds=3)
    assert [t.validation for t in result.trials] == pytest.approx([0.1, 0.2])  # of 0, 0.1, 0.2 and of 0.1, 0.2, 0.3
    assert result.best.paths == ("trial-0001", "trial-0001-seed1", "trial-0001-seed2")


def test_the_file_of_trials_says_everything(
    experiment: Experiment, scripted: Callable[[Score], Scripted], tmp_path: Path
) -> None:
    scripted(bowl)
    result = sweep(experiment, SPACE, trials=6, out=tmp_path)
    assert results.read(tmp_path) == result
    facts = json.loads((tmp_path / "trials.json").read_text())
    assert facts["best"] == result.best.number
    assert facts["space"]["local.optimizer"] == {"values": ["sgd", "adam"]}
    assert set(facts["importances"]) == set(SPACE)
    assert sum(facts["importances"].values()) == pytest.approx(1)


def test_importances_find_what_matters_also_on_a_log_scale() -> None:
    space: Space = {"a": Range(1e-4, 1.0, log=True), "b": Range(0.0, 1.0), "c": Choice(("x", [1]))}
    study = optuna.create_study(direction="maximize", sampler=optuna_study.Keyed(0))
    with optuna_study.quiet():
        for _ in range(12):
            trial = study.ask()
            study.tell(trial, float(optuna_study.proposed(trial, space)["a"] < 1e-2))
        shares = optuna_study.importances(study, space, seed=0)
    assert shares["a"] > 0.7
    assert shares == optuna_study.importances(study, space, seed=0)


# Stopped and gone on with.


def test_a_sweep_that_is_stopped_anywhere_proposes_the_same_trials(
    experiment: Experiment, scripted: Callable[[Score], Scripted], tmp_path: Path
) -> None:
    """13 trials, so that TPE has taken over from chance. A stop falls between a round and its report."""
    options: Mapping[str, Any] = {"trials": 13, "seed": 5, "prune": Median(startup=2, warmup=1)}
    script = scripted(bowl)
    whole = sweep(experiment, SPACE, out=tmp_path / "whole", **options)
    assert {t.state for t in whole.trials} == {"complete", "pruned"}
    pruned = next(t for t in whole.trials if t.state == "pruned")
    script.stop = {place: KeyboardInterrupt() for place in [(0, 1), (pruned.number, pruned.rounds), (11, 1), (12, 1)]}
    for _ in range(len(script.stop)):
        with pytest.raises(KeyboardInterrupt):
            sweep(experiment, SPACE, out=tmp_path / "stopped", **options)
    sweep(experiment, SPACE, out=tmp_path / "stopped", **options)
    assert outcomes(tmp_path / "stopped") == outcomes(tmp_path / "whole")


def test_a_proposal_that_was_cut_short_is_completed_to_the_same(tmp_path: Path) -> None:
    space: Space = {"a": Range(0.0, 1.0), "b": Range(0.0, 1.0)}
    proposals = []
    for cut in (False, True):
        with optuna_study.opened(tmp_path / f"{cut}.db", seed=3, pruner=None) as study:
            for number in range(12):
                trial = optuna_study.next_trial(study)
                if cut and number in (1, 11):  # by chance, and by TPE
                    trial.suggest_float("a", 0.0, 1.0)
                    trial = optuna_study.next_trial(study)
                study.tell(trial, optuna_study.proposed(trial, space)["a"])
            proposals.append([trial.params for trial in study.trials])
    assert proposals[0] == proposals[1]


def test_more_trials_go_on_after_those_that_are_there(
    experiment: Experiment, scripted: Callable[[Score], Scripted], tmp_path: Path
) -> None:
    scripted(bowl)
    first = sweep(experiment, SPACE, trials=2, out=tmp_path)
    more = sweep(experiment, SPACE, trials=4, out=tmp_path)
    assert more.trials[:2] == first.trials
    assert len(more.trials) == 4
    assert sweep(experiment, SPACE, trials=1, out=tmp_path) == more


def test_killed_in_mid_trial_it_ends_as_if_it_had_not_been(cli: CommandLine, tmp_path: Path) -> None:
    words: tuple[str, ...] = ("sweep", str(SMALL), "--trials", "3", "--startup-trials", "1", "--warmup-rounds", "1")
    words += ("--param", "local.lr=0.001..1:log", "--param", "local.batch_size=16,32", "--workers", "1")
    assert cli.here(*words, "--out", tmp_path / "whole").code == 0
    killed = tmp_path / "killed"
    with cli.forked(*words, "--out", killed) as process:
        end = time.monotonic() + ENOUGH
        while not (killed / "trial-0001/rounds.jsonl").exists():
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert [t["number"] for t in outcomes(killed)] == [0]
    result = cli.here(*words, "--out", killed)
    assert result.code == 0, result.text
    assert outcomes(killed) == outcomes(tmp_path / "whole")
    for trial in outcomes(killed):
        assert rounds_of(killed / trial["path"]) == rounds_of(tmp_path / "whole" / trial["path"])
    best = results.read(killed).best
    again = f"fedfuse run {SMALL} --set local.lr={best.parameters['local.lr']!r}"
    assert again in result.out
    assert "not used to choose" in result.out


# What goes wrong.


def test_a_trial_that_fails_does_not_end_the_sweep(
    experiment: Experiment, scripted: Callable[[Score], Scripted], tmp_path: Path
) -> None:
    script = scripted(bowl)
    script.stop[1, 2] = FedfuseError("every client was refused")
    warnings: list[str] = []

    class Notes(Silent):
        def warn(self, message: str) -> None:
            warnings.append(message)

    result = sweep(experiment, SPACE, trials=3, out=tmp_path, display=Notes())
    assert [t.state for t in result.trials] == ["complete", "failed", "complete"]
    assert (result.trials[1].reason, result.trials[1].validation) == ("every client was refused", None)
    assert warnings == ["trial 1 failed: every client was refused"]


def test_a_real_trial_fails_when_its_settings_cannot_be_run(cli: CommandLine, tmp_path: Path) -> None:
    words = ("sweep", SMALL, "--param", "partition.clients=2,5000", "--trials", "2", "--rounds", "1", "--out", tmp_path)
    result = cli.here(*words, "--workers", "1", "--seed", "1")
    states = {t["parameters"]["partition.clients"]: t["state"] for t in outcomes(tmp_path)}
    assert states == {2: "complete", 5000: "failed"}, result.text
    assert "failed: " in result.out


def test_a_full_disk_is_not_the_fault_of_the_trial(
    experiment: Experiment, scripted: Callable[[Score], Scripted], tmp_path: Path
) -> None:
    script = scripted(bowl)
    full = FedfuseError("no room")
    full.__cause__ = OSError(28, "No space left on device")
    script.stop[1, 2] = full
    with pytest.raises(FedfuseError, match="no room"):
        sweep(experiment, SPACE, trials=2, out=tmp_path)
    assert [t.state for t in sweep(experiment, SPACE, trials=2, out=tmp_path).trials] == ["complete", "complete"]


def test_a_directory_of_another_sweep_is_refused(
    experiment: Experiment, scripted: Callable[[Score], Scripted], tmp_path: Path
) -> None:
    scripted(bowl)
    sweep(experiment, SPACE, trials=1, out=tmp_path)
    other = {**SPACE, "local.lr": "0.1..1:log"}
    for changed, result in (
        ((experiment, other, 0), r"space.local\.lr: '0\.01\.\.1:log' then, '0\.1\.\.1:log' now"),
        ((experiment, SPACE, 1), "seed: 0 then, 1 now"),
        ((experiment.with_settings({"local.weight_decay": 0.5}), SPACE, 0), r"weight_decay: 0\.0 then, 0\.5 now"),
    ):
        with pytest.raises(FedfuseError, match=rf"holds another sweep\n  .*{result}\n.*choose another --out"):
            sweep(changed[0], changed[1], seed=changed[2], trials=1, out=tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/experiment.toml").touch()
    with pytest.raises(FedfuseError, match="holds a run"):
        sweep(experiment, SPACE, trials=1, out=tmp_path / "run")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--param", "local.lr=1..0"), "the low end must be less than the high end"),
        (("--param", "local.rl=0.1..1"), "did you mean lr?"),
        (("--param", "local.lr=0.1,fast"), "local.lr = 'fast'"),
        (("--param", "local.lr=-1.0..1"), "local.lr = -1.0"),
        (("--param", "algorithm.name=fedavg,fedavgg"), "did you mean fedavg?"),
        (("--param", "algorithm.name=fedavg,fedprox", "-a", "fedprox"), "leave one of them out"),
        (("--param", "local.lr=0.1..1", "--set", "data.validation=0"), "--set data.validation=0.1"),
        (("--param", "data.validation=0.1..0.2"), "same validation data"),
        ((), "Missing option"),
    ],
)
def test_a_mistake_is_told_before_anything_is_run(
    cli: CommandLine, words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    result = cli.here("sweep", SMALL, *words, "--out", tmp_path / "sweep")
    assert result.code == 2
    assert message in result.err
    assert not (tmp_path / "sweep").exists()


def test_without_optuna_it_says_what_to_install(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    for module in ("fedfuse.sweeps.search", "fedfuse.sweeps.study"):
        monkeypatch.delitem(sys.modules, module)
    result = cli.here("sweep", SMALL, "--param", "local.lr=0.1..1", "--out", tmp_path)
    assert result.code == 2
    assert 'pip install "fedfuse[sweep]"' in result.err


def test_rounds_that_are_not_evaluated_neither_prune_nor_count(
    experiment: Experiment, scripted: Callable[[Score], Scripted], tmp_path: Path
) -> None:
    """Evaluated are rounds 3 and 4. Trial 3 is pruned after round 3, the first with an accuracy."""
    scripted(lambda number, _: [0.2, 0.6, 0.4, 0.3][number])
    thinned = experiment.with_settings({"run.evaluate_every": 3})
    result = sweep(thinned, SPACE, trials=4, out=tmp_path, prune=Median(startup=3, warmup=1))
    assert [(t.state, t.rounds) for t in result.trials] == [("complete", 4)] * 3 + [("pruned", 3)]
    assert [t.test for t in result.trials] == pytest.approx([0.8, 0.4, 0.6, 0.7])
