"""The results of commands as JSON objects, one per line (`--json`). `docs/guides/scripts.md` lists their keys."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from fedfuse import signature
from fedfuse.algorithm import Algorithm
from fedfuse.algorithms import ALGORITHMS
from fedfuse.config.experiment import Experiment
from fedfuse.config.parts import PARTS
from fedfuse.data.federation import Federation
from fedfuse.data.picture import summary
from fedfuse.records.record import RoundRecord, accuracies, strict
from fedfuse.records.statistics import Row
from fedfuse.runs.display import Silent
from fedfuse.runs.result import Comparison
from fedfuse.runs.rows import round_facts
from fedfuse.sweeps.results import Sweep
from fedfuse.terminal.composition import algorithm_called, owner_of, parts_called
from fedfuse.terminal.tables import catalogue_entries

Object = Mapping[str, Any]


def print_objects(console: Console, objects: Iterator[Object]) -> None:
    """Print each object on a line, as strict JSON."""
    for each in objects:
        line = json.dumps(strict(dict(each)), allow_nan=False)
        console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)


class Objects(Silent):
    """An object per round, per warning and per finished run. With `rounds=False`, rounds are left out."""

    def __init__(self, console: Console, *, rounds: bool = True) -> None:
        self._console, self._with_rounds = console, rounds
        self._run, self._title, self._rounds = 1, "", 0

    def run_of_many(self, number: int, total: int) -> None:
        self._run = number

    def begin(self, title: str, rounds: int, history: Sequence[RoundRecord]) -> None:
        self._title, self._rounds = title, rounds

    def round_ends(self, record: RoundRecord) -> None:
        for problem in record.problems():
            self.warn(problem)
        if self._with_rounds:
            place = {"kind": "round", "run": self._run, "title": self._title, "rounds": self._rounds}
            self._print({**place, **round_facts(record)})

    def warn(self, message: str) -> None:
        self._print({"kind": "warning", "run": self._run, "message": message})

    def end(self, path: Path, history: Sequence[RoundRecord]) -> None:
        if history:
            self._print({"kind": "run", "run": self._run, "title": self._title, **_run(path, history)})

    def _print(self, one: Object) -> None:
        print_objects(self._console, iter([one]))


def _run(path: Path, history: Sequence[RoundRecord]) -> Object:
    final, by_round = history[-1], accuracies(history)
    best = max(by_round, key=lambda number: by_round[number])
    return {
        "path": str(path),
        "rounds": len(history),
        "final_accuracy": final.test_accuracy,
        "final_loss": final.test_loss,
        "best_accuracy": by_round[best],
        "best_round": best,
        "models": {arch: score.accuracy for arch, score in final.models.items()},
        "seconds": sum(sum(record.seconds.values()) for record in history),
    }


def of_comparison(rows: Comparison, target: float | None) -> Iterator[Object]:
    for row in rows:
        yield {
            "kind": "result",
            "algorithm": row.algorithm,
            "path": str(rows.path),
            "final_accuracy": row.final,
            "best_accuracy": row.best,
            "mean_over_rounds": row.mean_over_rounds,
            "seconds": row.seconds,
            **({} if target is None else {"target": target, "rounds_to_target": _rounds_to(row, target)}),
        }


def _rounds_to(row: Row, target: float) -> list[int | None]:
    return [None if record is None else record.round for record in row.reached(target)]


def of_sweep(sweep: Sweep) -> Iterator[Object]:
    for trial in sweep.trials:
        yield {
            "kind": "trial",
            "number": trial.number,
            "state": trial.state,
            "parameters": dict(trial.parameters),
            "validation_accuracy": trial.validation,
            "test_accuracy": trial.test,
            "rounds": trial.rounds,
            "path": str(sweep.path / trial.path),
            "reason": trial.reason,
        }
    yield {
        "kind": "sweep",
        "path": str(sweep.path),
        "trials": len(sweep.trials),
        "best": sweep.ranked[0].number if sweep.ranked else None,
        "importances": dict(sweep.importances),
    }


def of_report(path: Path) -> Object:
    return {"kind": "report", "path": str(path)}


def catalogue() -> Iterator[Object]:
    for kind, known in catalogue_entries().items():
        for name, text in known.items():
            yield {"kind": "entry", "of": kind, "name": name, "summary": text}


def of_check(experiment: Experiment, federation: Federation) -> Iterator[Object]:
    yield {
        "kind": "experiment",
        "name": experiment.name,
        "source": experiment.data.source,
        "training": len(federation.train),
        "validation": len(federation.validation),
        "test": len(federation.test),
        "pool": None if federation.pool is None else len(federation.pool),
        "classes": list(federation.labels),
        "shape": list(federation.train.shape),
        "clients": len(federation),
        "smallest_client": min(federation.sizes),
        "largest_client": max(federation.sizes),
        "models": list(experiment.models.weights),
        "algorithm": experiment.algorithm.name,
        "fingerprint": federation.fingerprint,
    }


def of_partition(federation: Federation) -> Iterator[Object]:
    for row in summary(federation):
        yield {
            "kind": "client",
            "client": row.client,
            "examples": row.examples,
            "classes": row.present,
            "entropy": row.entropy,
            "counts": dict(zip(federation.labels, row.counts, strict=True)),
        }


def explain(name: str) -> Iterator[Object]:
    """Yield what `show` shows: an algorithm, or each part of this name."""
    parts = [] if name in ALGORITHMS else parts_called(name)
    for kind, part in parts:
        yield {"kind": "part", "name": name, "of": kind, "summary": signature.summary(part), **_settings(part)}
    if not parts:
        function, _ = algorithm_called(name)
        text = inspect.getdoc(inspect.getmodule(function)) or ""
        yield {"kind": "algorithm", "name": name, "summary": signature.summary(function), "text": text} | _settings(
            function
        )


def _settings(function: signature.Function) -> dict[str, Any]:
    """Return each setting with its default; for one that is passed on to a part, which part."""
    defaults = {p.name: signature.default_of(function, p) for p in signature.settings_of(function)}
    settings = {}
    for name, default in defaults.items():
        owner, required = owner_of(function, name), default is inspect.Parameter.empty
        value = default if owner is None else getattr(defaults.get(owner), name, None)
        settings[name] = {"default": None if required else _plain(value), "required": required, "part": owner}
    return {"settings": settings}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Algorithm):
        return value.name
    names = {part: name for known in PARTS.values() for name, part in known.items()}
    return names.get(type(value), repr(value))
