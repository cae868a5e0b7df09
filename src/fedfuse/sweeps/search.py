"""Search for good settings: run trials with different parameters, and choose by validation accuracy.

Test data is not used: proposals, pruning and ranking never see a test accuracy. A sweep that is stopped at any time
continues with the same trials, since proposals are drawn by key and each trial is a run that can be resumed.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfuse.config.experiment import Experiment
from fedfuse.data.federation import Federation
from fedfuse.data.sources.location import Location
from fedfuse.files import locked
from fedfuse.records import record
from fedfuse.records.directory import EXPERIMENT, ROUNDS, write_or_compare
from fedfuse.records.directory import NO_BIT as RUN_NO_BIT
from fedfuse.records.record import RoundRecord
from fedfuse.runs.display import Display
from fedfuse.runs.progress import from_python
from fedfuse.runs.run import provenance, run
from fedfuse.runs.setup import check
from fedfuse.sweeps import results, space
from fedfuse.sweeps import study as optuna_study
from fedfuse.sweeps.results import STUDY, SWEEP, TRIALS, Sweep, Trial
from fedfuse.sweeps.space import Parameter, Space, parse_parameter
from fedfuse.sweeps.study import Pruned, Pruning
from fedfuse.types import DamagedError, FedfuseError

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

NO_BIT = tuple(f"experiment.{key}" for key in RUN_NO_BIT)  # settings that do not affect the results of a run


@dataclass(frozen=True)
class Median:
    """Prune a trial that is worse than the median, after `startup` complete trials and its first `warmup` rounds."""

    startup: int = 5
    warmup: int | None = None  # by default a quarter of the rounds

    def __post_init__(self) -> None:
        if min(self.startup, self.warmup or 0) < 0:
            raise FedfuseError(f"{self}: neither may be negative; use 0 to prune from the start")


MEDIAN = Median()


@dataclass(frozen=True)
class Plan:
    """Everything that determines a sweep, except its number of trials."""

    experiment: Experiment
    space: Space
    seed: int
    seeds: int
    prune: Median | None

    @property
    def warmup(self) -> int:
        warmup = None if self.prune is None else self.prune.warmup
        return self.experiment.run.rounds // 4 if warmup is None else warmup

    def runs(self, number: int, parameters: Mapping[str, Any]) -> dict[str, Experiment]:
        """Return the runs of a trial by directory: one per seed, starting at the experiment's own."""
        own = self.experiment.run.seed
        settings = space.in_order(parameters)
        return {
            name: self.experiment.with_settings({**settings, "run.seed": own + i})
            for i, name in enumerate(self.names(number))
        }

    def names(self, number: int) -> tuple[str, ...]:
        own = self.experiment.run.seed
        first = f"trial-{number:04d}"
        return (first, *(f"{first}-seed{own + i}" for i in range(1, self.seeds)))

    def facts(self, federation: Federation) -> dict[str, Any]:
        """Return the contents of `sweep.toml`."""
        prune = {} if self.prune is None else {"startup": self.prune.startup, "warmup": self.warmup}
        return {
            "seed": self.seed,
            "seeds": self.seeds,
            "prune": prune,
            "space": {key: str(parameter) for key, parameter in self.space.items()},
            "experiment": self.experiment.resolved(),
            "provenance": provenance(self.experiment, federation),
        }


def sweep(
    experiment: Experiment,
    space: Mapping[str, Parameter | str],
    *,
    trials: int = 20,
    out: str | Path | None = None,
    seed: int = 0,
    seeds: int = 1,
    prune: Median | None = MEDIAN,
    progress: bool = True,
    display: Display | None = None,
) -> Sweep:
    """Run trials until `out` holds `trials` of them, and return all results.

    `space` maps each dotted key to a `Range`, a `Choice`, or text as on the command line: "0.01..1:log". `seed` is the
    seed of the proposals. A trial has `seeds` runs, with consecutive seeds that start at the experiment's own.
    `progress` and `display` are as of `run`.
    """
    parameters = {key: parse_parameter(key, p) if isinstance(p, str) else p for key, p in space.items()}
    if min(trials, seeds) < 1:
        raise FedfuseError(f"trials = {trials}, seeds = {seeds}: both must be at least 1")
    plan = Plan(experiment, parameters, seed, seeds, prune)
    with from_python(display, progress) as shown:
        return _search(plan, trials, Path(out or default_path(experiment)), shown)


def _search(plan: Plan, trials: int, folder: Path, display: Display) -> Sweep:
    federation = _check(plan, display)
    if (folder / EXPERIMENT).exists():
        raise FedfuseError(f"{folder} holds a run: choose another --out for the sweep")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder), optuna_study.quiet():
        write_or_compare(folder / SWEEP, plan.facts(federation), f"{folder} holds another sweep", NO_BIT)
        pruner = None if plan.prune is None else optuna_study.median_pruner(plan.prune.startup, plan.warmup)
        with optuna_study.opened(folder / STUDY, plan.seed, pruner) as study:
            _compare_with_results(study, plan, folder)
            for number in range(len(optuna_study.finished(study)), trials):
                display.run_of_many(number + 1, trials)
                _try(plan, study, folder, display)
                results.write(_collect(plan, study, folder))
            result = _collect(plan, study, folder)
            results.write(result)  # a kill may have come before the last trial was written
    return result


def _compare_with_results(study: Study, plan: Plan, folder: Path) -> None:
    """Raise an error if Optuna's record of the finished trials differs from the results that were written."""
    if not (folder / TRIALS).exists():
        return
    in_study = {trial.number: _facts(_outcome(plan, trial, folder)) for trial in optuna_study.finished(study)}
    for trial in results.read(folder).trials:
        if in_study.get(trial.number) != _facts(trial):
            raise DamagedError(
                f"{folder / STUDY}: trial {trial.number} is not as it was written to {TRIALS}: restore both files, or "
                "choose another --out"
            )


def _facts(trial: Trial) -> tuple[Any, ...]:
    return trial.state, dict(trial.parameters), trial.validation


def default_path(experiment: Experiment) -> Path:
    return Path("runs") / f"sweep-{experiment.name}"


def _check(plan: Plan, display: Display) -> Federation:
    """Check without training that the experiment accepts every value and has validation data. Return its federation."""
    space.check_keys(tuple(plan.space))
    first, *others = space.probes(plan.space)
    for settings in others:
        plan.experiment.with_settings(settings)
    federation = check(plan.experiment.with_settings(first), Location.at(progress=display.preparing)).federation
    if not len(federation.validation):
        raise FedfuseError(
            f"data.validation = {plan.experiment.data.validation:g}: a sweep chooses by validation accuracy, and no "
            "validation data is held out; hold out a share of the training data: --set data.validation=0.1"
        )
    return federation


def _try(plan: Plan, study: Study, folder: Path, display: Display) -> None:
    """Run the next trial, or the rest of the one that was interrupted."""
    trial = optuna_study.next_trial(study)
    parameters = optuna_study.proposed(trial, plan.space)
    try:
        accuracies: list[float] = []
        for name, experiment in plan.runs(trial.number, parameters).items():
            # Other seeds have other validation data, which cannot be compared with the median of the first seed.
            observers = [] if accuracies else [Pruning(trial)]
            path = folder / name
            resume = (path / EXPERIMENT).exists()
            final = run(experiment, path, resume=resume, display=display, observers=observers).final
            assert final.validation_accuracy is not None
            accuracies.append(final.validation_accuracy)
    except Pruned:
        optuna_study.tell_pruned(trial)
    except FedfuseError as error:
        # A full disk or a damaged file says nothing about the parameters.
        if isinstance(error, DamagedError) or isinstance(error.__cause__, OSError):
            raise
        display.warn(f"trial {trial.number} failed: {error}")
        optuna_study.tell_failed(trial, str(error))
    else:
        study.tell(trial, statistics.fmean(accuracies))


def _collect(plan: Plan, study: Study, folder: Path) -> Sweep:
    return Sweep(
        folder,
        plan.experiment.name,
        plan.experiment.run.rounds,
        plan.seeds,
        plan.space,
        tuple(_outcome(plan, trial, folder) for trial in optuna_study.finished(study)),
        optuna_study.importances(study, plan.space, plan.seed),
    )


def _last_accuracies(histories: Sequence[Sequence[RoundRecord]]) -> list[float]:
    """Return the test accuracy of each run's last evaluated round, if it has one."""
    each = [list(record.accuracies(history).values()) for history in histories]
    return [accuracies[-1] for accuracies in each if accuracies]


def _outcome(plan: Plan, trial: FrozenTrial, folder: Path) -> Trial:
    names = [name for name in plan.names(trial.number) if (folder / name / EXPERIMENT).exists()]
    histories = [history for name in names if (history := record.read(folder / name / ROUNDS))]
    return Trial(
        number=trial.number,
        parameters=optuna_study.values_of(trial.params, plan.space),
        state=optuna_study.STATES[trial.state],
        validation=trial.value,  # for a pruned trial, the last value that was reported to Optuna
        test=statistics.fmean(last) if (last := _last_accuracies(histories)) else None,
        rounds=len(histories[0]) if histories else 0,
        path=plan.names(trial.number)[0],
        paths=tuple(names),
        reason=optuna_study.reason(trial),
    )
