"""Optuna's part of a sweep: propose parameters, prune trials, and keep the study on disk."""

from __future__ import annotations

import math
import sqlite3
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from fedfuse import rng
from fedfuse.records.observer import RunInfo
from fedfuse.records.record import RoundRecord
from fedfuse.sweeps.results import State
from fedfuse.sweeps.space import Choice, Parameter, Range, Space
from fedfuse.types import DamagedError, FedfuseError

try:
    import optuna
except ModuleNotFoundError as missing:
    raise FedfuseError(f'a sweep needs {missing.name}: pip install "fedfuse[sweep]"') from missing
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

STATES: Mapping[TrialState, State] = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}
ENOUGH = 4  # complete trials that importances need to be meaningful


class Keyed(optuna.samplers.BaseSampler):
    """TPE whose randomness is a function of the sweep's seed, the trial's number and the parameter's name.

    A sampler with its own generator would draw other values after a resume, since the generator would start over.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def _tpe(self, trial: FrozenTrial, *parts: str) -> optuna.samplers.TPESampler:
        seed = rng.key(self._seed, "sweep", trial.number, *parts) % 2**32  # numpy seeds have 32 bits
        return optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=False)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._tpe(trial).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._tpe(trial).sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._tpe(trial, param_name).sample_independent(study, trial, param_name, param_distribution)


class Pruned(Exception):
    """Raised to end a trial early, because it is worse than the median of earlier trials."""


class Pruning:
    """Report the validation accuracy of each evaluated round, and raise `Pruned` when the study's pruner decides to."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._reported_rounds = set(trial.study.trials[trial.number].intermediate_values)
        self._rounds = 0

    def begin(self, run: RunInfo, history: Sequence[RoundRecord]) -> None:
        self._rounds = run.rounds
        for record in history:  # a kill may have come after a round but before its report
            self.round(record)

    def round(self, record: RoundRecord) -> None:
        if record.validation_accuracy is None:  # the round was not evaluated
            return
        if record.round not in self._reported_rounds:
            self._trial.report(record.validation_accuracy, record.round)
        # Do not prune after the last round: it would save nothing, and a complete trial is worth more.
        if record.round < self._rounds and self._trial.should_prune():
            raise Pruned(f"validation accuracy {record.validation_accuracy:.4f} is below the median of earlier trials")

    def end(self, history: Sequence[RoundRecord]) -> None:
        pass


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress Optuna's log lines and its warnings about experimental features."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


def median_pruner(startup: int, warmup: int) -> optuna.pruners.BasePruner:
    """Return the pruner of `Median`. Rounds count from 1, the pruner's steps from 0."""
    return optuna.pruners.MedianPruner(n_startup_trials=startup, n_warmup_steps=warmup + 1)


@contextmanager
def opened(file: Path, seed: int, pruner: optuna.pruners.BasePruner | None) -> Iterator[Study]:
    """Open the study in this SQLite file, or create it."""
    _check_database(file)
    try:
        storage = optuna.storages.RDBStorage(f"sqlite:///{file.resolve()}")
        study = optuna.create_study(
            storage=storage,
            study_name="sweep",
            direction="maximize",
            sampler=Keyed(seed),
            pruner=pruner or optuna.pruners.NopPruner(),
            load_if_exists=True,
        )
        study.get_trials(deepcopy=False)
    except Exception as error:  # rows of a changed file may raise anything
        raise _damaged(file, error) from error
    try:
        yield study
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _check_database(file: Path) -> None:
    """Raise an error if the file is no intact SQLite database."""
    if not file.exists():
        return
    try:
        with closing(sqlite3.connect(file)) as database:
            problem = database.execute("PRAGMA integrity_check").fetchone()[0]
    except sqlite3.Error as error:
        problem = str(error)
    if problem != "ok":
        raise _damaged(file, problem)


def _damaged(file: Path, problem: object) -> FedfuseError:
    first = str(problem).partition("\n")[0]
    return DamagedError(f"{file}: is damaged ({first}): restore it, or choose another --out")


def next_trial(study: Study) -> Trial:
    """Return the trial that was interrupted, or a new one."""
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    # Optuna's public interface cannot reopen a trial that another process started.
    return Trial(study, running[0]._trial_id) if running else study.ask()


def finished(study: Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=tuple(STATES))


def tell_pruned(trial: Trial) -> None:
    trial.study.tell(trial, state=TrialState.PRUNED)


def tell_failed(trial: Trial, reason: str) -> None:
    trial.set_user_attr("reason", reason)
    trial.study.tell(trial, state=TrialState.FAIL)


def reason(trial: FrozenTrial) -> str | None:
    return trial.user_attrs.get("reason")


def proposed(trial: Trial, space: Space) -> dict[str, Any]:
    """Return this trial's parameters. Those that it does not have yet are drawn."""
    for key, parameter in space.items():
        if isinstance(parameter, Choice):
            trial.suggest_categorical(key, parameter.texts)
        elif parameter.whole:
            trial.suggest_int(key, int(parameter.low), int(parameter.high), log=parameter.log)
        else:
            trial.suggest_float(key, parameter.low, parameter.high, log=parameter.log)
    return values_of(trial.params, space)


def values_of(params: Mapping[str, Any], space: Space) -> dict[str, Any]:
    """Convert Optuna's parameters to values: it stores the values of a choice as text."""
    return {key: _value(parameter, params[key]) for key, parameter in space.items() if key in params}


def _value(parameter: Parameter, param: Any) -> Any:
    return parameter.values[parameter.texts.index(param)] if isinstance(parameter, Choice) else param


def importances(study: Study, space: Space, seed: int) -> dict[str, float]:
    """Return the share of the variance of validation accuracy that each key explains: fANOVA over complete trials."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(complete) < ENOUGH or len({trial.value for trial in complete}) < 2:
        return {}
    # fANOVA averages uniformly over the plain numbers, even where a range is on a log scale. So give it logarithms.
    flat = optuna.create_study(direction="maximize")
    for trial in complete:
        params = {key: _flat(space[key], value) for key, value in trial.params.items()}
        distributions = {key: _distribution(space[key]) for key in trial.params}
        flat.add_trial(optuna.create_trial(params=params, distributions=distributions, value=trial.value))
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=rng.key(seed, "importances") % 2**32)
    shares = optuna.importance.get_param_importances(flat, evaluator=evaluator)
    return {key: float(share) for key, share in shares.items()}


def _flat(parameter: Parameter, param: Any) -> Any:
    return math.log(param) if isinstance(parameter, Range) and parameter.log else param


def _distribution(parameter: Parameter) -> BaseDistribution:
    if isinstance(parameter, Choice):
        return CategoricalDistribution(parameter.texts)
    if parameter.log:
        return FloatDistribution(math.log(parameter.low), math.log(parameter.high))
    if parameter.whole:
        return IntDistribution(int(parameter.low), int(parameter.high))
    return FloatDistribution(parameter.low, parameter.high)
