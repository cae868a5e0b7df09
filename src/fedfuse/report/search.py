"""What a sweep found: its best trials, which settings mattered, and all trials as lines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedfuse.report.block import Block, Section, Table, Words
from fedfuse.report.figure import Axis, Bar, Bars, Cell, Parallel
from fedfuse.report.read import TRIALS
from fedfuse.types import FedfuseError

SHOWN = 5  # trials whose runs the rest of the page shows


def read(folder: Path) -> Mapping[str, Any] | None:
    """The file that a sweep keeps of its trials; None where there is no sweep."""
    if not (folder / TRIALS).is_file():
        return None
    try:
        found = json.loads((folder / TRIALS).read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else None
    except ValueError as error:
        raise FedfuseError(f"{folder / TRIALS}: not a record of trials ({error})") from error


def best_first(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    done = [t for t in found["trials"] if t["state"] == "complete" and t["validation"] is not None]
    return sorted(done, key=lambda t: -t["validation"])


def section(found: Mapping[str, Any]) -> Section | None:
    trials = found["trials"]
    if not trials:
        return None
    keys = list(trials[0]["parameters"])
    blocks: list[Block] = [Words(_verdict(found, trials)), _table(trials, keys)]
    done = best_first(found)
    if len(done) > 1:
        blocks.insert(1, _parallel(done, keys))
    if found.get("importances"):
        blocks.insert(2, _importances(found["importances"]))
    return Section("search", "Search", blocks)


def _verdict(found: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]) -> str:
    count = {state: sum(t["state"] == state for t in trials) for state in ("complete", "pruned", "failed")}
    said = f"{len(trials)} trials: " + ", ".join(f"{n} {state}" for state, n in count.items() if n) + "."
    done = best_first(found)
    if done:
        settings = ", ".join(f"{k} = {_said(v)}" for k, v in done[0]["parameters"].items())
        accuracy = f"{100 * done[0]['validation']:.2f} % on validation data"
        said += f" The best is trial {done[0]['number']} with {settings}: {accuracy}."
    return f"{said} Test data had no part in the choice."


def _said(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _parallel(done: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> Parallel:
    axes = [_axis(key, [t["parameters"][key] for t in done]) for key in keys]
    axes.append(Axis("validation accuracy / %", [100 * t["validation"] for t in done]))
    caption = "A line per complete trial, through its settings to its validation accuracy; darker is better."
    return Parallel("parallel", "Trials", caption, axes)


def _axis(key: str, values: Sequence[Any]) -> Axis:
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        numbers = [float(v) for v in values]
        wide = min(numbers) > 0 and max(numbers) / min(numbers) > 20
        return Axis(key, numbers, log=wide)
    words = list(dict.fromkeys(str(v) for v in values))
    return Axis(key, [float(words.index(str(v))) for v in values], {float(i): w for i, w in enumerate(words)})


def _importances(shares: Mapping[str, float]) -> Bars:
    ordered = sorted(shares.items(), key=lambda kv: -kv[1])
    bar = Bar("importance", [100 * v for _, v in ordered], 0)
    caption = "How much of the differences between trials each setting explains, as estimated from the trials."
    return Bars(
        "importance", "What mattered", caption, "", "importance / %", [k for k, _ in ordered], [bar], sideways=True
    )


def _table(trials: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> Table:
    ordered = sorted(trials, key=lambda t: (t["state"] != "complete", -(t["validation"] or 0.0)))
    rows: list[list[Cell]] = [
        [
            t["number"],
            *(_said(t["parameters"][k]) for k in keys),
            t["state"],
            t["rounds"],
            _percent(t["validation"]),
            _percent(t["test"]),
        ]
        for t in ordered
    ]
    columns = ["trial", *keys, "state", "rounds", "validation / %", "test, not used / %"]
    return Table("trials", "All trials", columns, rows, ("state",))


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:.2f}"
