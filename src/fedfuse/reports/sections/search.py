"""The results of a sweep: its best trials, the importance of each setting, and all trials as lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedfuse.config.values import format_value
from fedfuse.reports.elements import Amount, Block, Card, Section, Table, Words
from fedfuse.reports.figure import Axis, Bar, Bars, Cell, Figure, Parallel
from fedfuse.sweeps.results import TRIALS, Sweep, Trial, read
from fedfuse.sweeps.space import Range

SHOWN = 5  # best trials whose runs the rest of the page shows


def sweep_at(folder: Path) -> Sweep | None:
    return read(folder) if (folder / TRIALS).is_file() else None


def best_runs(sweep: Sweep) -> dict[Path, str]:
    """Map the run directories of the best trials to their names."""
    return {sweep.path / path: f"trial {trial.number}" for trial in sweep.ranked[:SHOWN] for path in trial.paths}


def section(sweep: Sweep) -> Section | None:
    if not sweep.trials:
        return None
    figures: list[Figure] = []
    if len(sweep.ranked) > 1:
        figures.append(_parallel(sweep))
    if sweep.importances:
        figures.append(_importances(sweep.importances))
    blocks: list[Block] = [Words(_verdict(sweep)), *figures, _table(sweep)]
    return Section("search", "Verdict", blocks, _cards(sweep))


def _cards(sweep: Sweep) -> list[Card]:
    cards = [Card("trials", str(len(sweep.trials)), f"{sum(t.state == 'pruned' for t in sweep.trials)} pruned")]
    if sweep.ranked:
        best = f"trial {sweep.best.number}"
        cards.insert(0, Card("validation accuracy", f"{_percent(sweep.best.validation)} %", f"{best}, the best"))
        cards.insert(1, Card("its test accuracy", f"{_percent(sweep.best.test)} %", "not used to choose"))
    return cards


def _verdict(sweep: Sweep) -> str:
    count = {state: sum(t.state == state for t in sweep.trials) for state in ("complete", "pruned", "failed")}
    text = f"{len(sweep.trials)} trials: " + ", ".join(f"{n} {state}" for state, n in count.items() if n) + "."
    if sweep.ranked:
        best = sweep.best
        settings = ", ".join(f"{key} = {_short(value)}" for key, value in best.parameters.items())
        text += f" The best is trial {best.number} with {settings}: {_percent(best.validation)} % on validation data."
    text += " Test data was not used for the choice."
    return f"{text} The figures below show the best {min(SHOWN, len(sweep.ranked))} trials." if sweep.ranked else text


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else format_value(value)


def _parallel(sweep: Sweep) -> Parallel:
    trials = sweep.ranked
    axes = [_axis(key, [t.parameters[key] for t in trials], sweep) for key in sweep.space]
    axes.append(Axis("validation / %", [100 * (t.validation or 0.0) for t in trials]))
    caption = "One line per complete trial, through its settings to its validation accuracy; darker is better."
    return Parallel("parallel", "Trials", caption, axes)


def _axis(key: str, values: Sequence[Any], sweep: Sweep) -> Axis:
    space = sweep.space[key]
    if isinstance(space, Range):
        return Axis(key, [float(v) for v in values], log=space.log)
    texts = [_short(v) for v in space.values]  # in the order of the search space
    return Axis(key, [float(texts.index(_short(v))) for v in values], {float(i): text for i, text in enumerate(texts)})


def _importances(shares: Mapping[str, float]) -> Bars:
    ordered = sorted(shares.items(), key=lambda kv: -kv[1])
    bar = Bar("importance", [100 * v for _, v in ordered], 0)
    names = [key for key, _ in ordered]
    caption = "How much of the differences between trials each setting explains, estimated from the trials (fANOVA)."
    return Bars("importance", "Importance of settings", caption, "", "importance / %", names, [bar], sideways=True)


def _table(sweep: Sweep) -> Table:
    others = [trial for trial in sweep.trials if trial.state != "complete"]
    columns = ["trial", *sweep.space, "state", "rounds", "validation / %", "test, not used / %"]
    rows = [_row(trial, list(sweep.space)) for trial in [*sweep.ranked, *others]]
    return Table("trials", "All trials", columns, rows, ("state",))


def _row(trial: Trial, keys: Sequence[str]) -> list[Cell | Amount]:
    settings = [_setting(trial.parameters[key]) for key in keys]
    state = trial.state if trial.reason is None else f"{trial.state}: {trial.reason}"
    return [trial.number, *settings, state, trial.rounds, _accuracy(trial.validation), _accuracy(trial.test)]


def _setting(value: Any) -> str | Amount:
    return Amount(_short(value), {"": value}) if isinstance(value, float) else _short(value)


def _accuracy(value: float | None) -> Amount | None:
    return None if value is None else Amount(f"{100 * value:.2f}", {"": 100 * value})


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{100 * value:.2f}"
