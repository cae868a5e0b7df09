"""What was measured for a table or figure: every row by group, seed and round, with date, commit and command."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from fedfuse.files import write_whole
from fedfuse.papers.item import SCALES, Item, Measure, ScaleName, names
from fedfuse.types import FedfuseError

Curves = Mapping[str, Mapping[str, Sequence[Sequence[float]]]]  # group -> row -> seed -> round


@dataclass(frozen=True)
class Result:
    """One run of an item. Accuracies are shares; a row that is no accuracy over rounds has one round."""

    item: str
    scale: ScaleName
    seeds: Sequence[int]
    date: str
    commit: str
    command: str
    minutes: float
    setting: str  # the experiment's settings in words
    curves: Curves
    sent: Curves = field(default_factory=dict)  # parameters up to each round, where the item counts them

    @property
    def name(self) -> str:
        """The name of its file without the ending: the item's, and the scale if it is not small."""
        return self.item if self.scale == "small" else f"{self.item}-{self.scale}"

    def of(self, item: Item) -> Item:
        """Return the item with the groups and rows that were measured."""
        return item.at(self.scale, self.curves, {row for rows in self.curves.values() for row in rows})

    def values(self, item: Item, measure: Measure, group: str, row: str) -> list[float]:
        """Return the measure for each seed: accuracies in percent, a number as it is."""
        curves = self.curves[group][row]
        if measure == "number":
            return [curve[-1] for curve in curves]
        if measure == "rounds":
            return [float(_reached(curve, item.target_of(group)) or len(curve) + 1) for curve in curves]
        if measure == "parameters":
            sent = self.sent[group][row]
            return [s[(_reached(c, item.target_of(group)) or len(c)) - 1] for c, s in zip(curves, sent, strict=True)]
        return [100 * _summary(curve, measure) for curve in curves]

    def all_reach(self, item: Item, group: str, row: str) -> bool:
        """Return whether every seed reached the group's target."""
        return all(_reached(curve, item.target_of(group)) for curve in self.curves[group][row])

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False)
        text = re.sub(r"\[[^][{}\"]*\]", lambda curve: " ".join(curve[0].split()), text)  # a line for each curve
        write_whole(path, f"{text}\n".encode())

    @staticmethod
    def read(path: Path) -> Result:
        try:
            return TypeAdapter(Result).validate_json(path.read_text(encoding="utf-8"))
        except (ValidationError, UnicodeDecodeError) as error:
            raise FedfuseError(f"{path}: is not a result of `fedfuse papers run`: {error}") from error


def _reached(curve: Sequence[float], target: float | None) -> int | None:
    """Return the number of the first round at the target, or None."""
    assert target is not None  # the item was checked
    return next((number for number, value in enumerate(curve, 1) if value >= target), None)


def _summary(curve: Sequence[float], measure: Measure) -> float:
    return statistics.fmean(curve) if measure == "mean" else max(curve) if measure == "best" else curve[-1]


def read_all(folder: Path) -> dict[str, Result]:
    """Return the results in a folder by name, in the order of the items; of one item, the smallest scale first."""
    if not folder.is_dir():
        raise FedfuseError(f"{folder}: there is no such folder of results")
    results = [Result.read(path) for path in folder.glob("*.json")]
    order = {name: number for number, name in enumerate(names())}
    results.sort(key=lambda r: (order.get(r.item, len(order)), SCALES.index(r.scale)))
    return {result.name: result for result in results}
