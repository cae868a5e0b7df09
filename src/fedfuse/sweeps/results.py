"""The results of a sweep, as stored in its directory. Nothing here needs Optuna.

`trials.json` is replaced atomically after each trial:

    {
      "experiment": "digits",           the name of the experiment
      "rounds": 20,                     rounds of a whole trial
      "seeds": 1,                       runs per trial; accuracies are means over them
      "space": {                        what was searched, in the order given
        "local.lr": {"low": 0.01, "high": 1.0, "log": true},     integers if both ends are integers
        "algorithm.steps": {"values": [100, 500]}
      },
      "trials": [                       finished trials, by number
        {
          "number": 7,
          "parameters": {"local.lr": 0.31, "algorithm.steps": 500},
          "state": "complete",          or "pruned" (ended early) or "failed"
          "validation": 0.93,           after its last round: the sweep chooses by it; null if failed
          "test": 0.92,                 after its last round: never used to choose; null without a round
          "rounds": 20,                 how many rounds it ran
          "path": "trial-0007",         its run directory, relative to this file
          "paths": ["trial-0007"],      all that exist: one per seed, in order; [] if it failed before the first
          "reason": null                why it failed
        }
      ],
      "importances": {"local.lr": 0.9, "algorithm.steps": 0.1},  shares of the variance of validation accuracy that
                                        each key explains (fANOVA), largest first; {} while there are too few trials
      "best": 7,                        the number of the best complete trial, or null
      "digest": "0123456789abcdef"      of all the above, so that a changed number is noticed
    }
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedfuse.config.values import format_value
from fedfuse.notebook import table
from fedfuse.records.sealed import read_json, write_json
from fedfuse.sweeps.space import Space, from_facts
from fedfuse.types import DamagedError, FedfuseError

SWEEP = "sweep.toml"  # what is searched
STUDY = "study.db"  # Optuna's own record, for resuming and for its dashboard
TRIALS = "trials.json"

State = Literal["complete", "pruned", "failed"]


@dataclass(frozen=True)
class Trial:
    """One set of parameters and its result. `validation` and `test` are accuracies after its last round."""

    number: int
    parameters: Mapping[str, Any]
    state: State
    validation: float | None
    test: float | None
    rounds: int
    path: str
    paths: tuple[str, ...]
    reason: str | None = None


@dataclass(frozen=True, repr=False)
class Sweep:
    """A sweep with all its finished trials."""

    path: Path
    experiment: str
    rounds: int
    seeds: int
    space: Space
    trials: tuple[Trial, ...]
    importances: Mapping[str, float] = field(default_factory=dict)

    @property
    def ranked(self) -> list[Trial]:
        """Complete trials, best validation accuracy first; ties in order of number."""
        return sorted((t for t in self.trials if t.state == "complete"), key=lambda t: (-(t.validation or 0), t.number))

    @property
    def best(self) -> Trial:
        if ranked := self.ranked:
            return ranked[0]
        reasons = [f"trial {t.number}: {t.reason}" for t in self.trials if t.reason]
        raise FedfuseError(f"{self.path}: no trial was completed. " + (reasons[0] if reasons else "Run more trials"))

    def __repr__(self) -> str:
        best = "".join(f", best validation accuracy {t.validation:.4f} of trial {t.number}" for t in self.ranked[:1])
        return f"Sweep({str(self.path)!r}, {len(self.trials)} trials{best})"

    def _repr_html_(self) -> str:
        rows = [
            (trial.number, *(format_value(trial.parameters.get(key)) for key in self.space), *_percent(trial))
            for trial in self.ranked
        ]
        header = ("trial", *self.space, "validation accuracy %", "test accuracy % (not used to choose)")
        return table(f"{self.path}: {len(self.trials)} trials, {len(rows)} complete", header, rows)


def _percent(trial: Trial) -> list[str]:
    return ["" if share is None else f"{100 * share:.2f}" for share in (trial.validation, trial.test)]


def write(sweep: Sweep) -> None:
    facts = {
        "experiment": sweep.experiment,
        "rounds": sweep.rounds,
        "seeds": sweep.seeds,
        "space": {key: parameter.facts() for key, parameter in sweep.space.items()},
        "trials": [asdict(trial) for trial in sweep.trials],
        "importances": dict(sweep.importances),
        "best": sweep.ranked[0].number if sweep.ranked else None,
    }
    write_json(sweep.path / TRIALS, facts, indent=1)


@dataclass(frozen=True)
class _Facts:
    """The contents of `trials.json`."""

    experiment: str
    rounds: int
    seeds: int
    space: Mapping[str, Mapping[str, Any]]
    trials: tuple[Trial, ...]
    importances: Mapping[str, float]


def read(folder: Path) -> Sweep:
    """Read the sweep in this directory."""
    file, again = folder / TRIALS, "give the same sweep command again"
    if not file.exists():
        raise FedfuseError(f"{file}: there is no such file: is {folder} the directory of a sweep?")
    facts = read_json(file, _Facts, again)
    try:
        space = {key: from_facts(parameter) for key, parameter in facts.space.items()}
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedError(f"{file}: not the trials of a sweep ({error}): {again}") from error
    return Sweep(folder, facts.experiment, facts.rounds, facts.seeds, space, facts.trials, facts.importances)
