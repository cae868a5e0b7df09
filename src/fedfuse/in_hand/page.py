"""The page of a fusion: the quality of all models, and the course of the distillation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedfuse.reports import html
from fedfuse.reports.elements import Card, Section, Table
from fedfuse.reports.figure import Bar, Bars, Cell, Curves, Series
from fedfuse.reports.page import Report

POINTS = 500  # of a curve: more cannot be seen


@dataclass(frozen=True)
class Row:
    name: str
    accuracy: float | None
    agreement: float | None


def write_page(
    out: Path, rows: Sequence[Row], losses: Sequence[float], validation: Sequence[tuple[int, float]], course: str
) -> Path:
    """Write the page."""
    best = max((row for row in rows if row.accuracy is not None), key=lambda r: r.accuracy or 0, default=None)
    student = rows[-1]
    cards = [Card("student", _percent(student.accuracy), "on validation data")] if student.accuracy is not None else []
    cards += [Card("agreement", _percent(student.agreement), "of student and ensemble on the pool")]
    cards += [Card("best", _percent(best.accuracy), best.name)] if best is not None else []
    sections = [
        Section("models", "Models", [_bars(rows), _table(rows)], cards),
        Section("course", f"Distillation: {course}", _curves(losses, validation)),
    ]
    return html.write(Report("Models fused into one", " · ".join(row.name for row in rows), sections), out)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f} %"


def _bars(rows: Sequence[Row]) -> Bars:
    by_accuracy = any(row.accuracy is not None for row in rows)
    what = "accuracy on validation data" if by_accuracy else "agreement with the ensemble on the pool"
    shares = {row.name: row.accuracy if by_accuracy else row.agreement for row in rows}
    known = {name: 100 * share for name, share in shares.items() if share is not None}
    bars = [Bar(what, list(known.values()), 0)]
    return Bars("models", "Every model", what, "", f"{what} (%)", list(known), bars, sideways=True)


def _table(rows: Sequence[Row]) -> Table:
    measures = {"accuracy": [r.accuracy for r in rows], "agreement with the ensemble": [r.agreement for r in rows]}
    known = {name: shares for name, shares in measures.items() if any(share is not None for share in shares)}
    cells: list[list[Cell]] = [
        [row.name, *(_percent(shares[number]) for shares in known.values())] for number, row in enumerate(rows)
    ]
    return Table("numbers", "Numbers", ["model", *known], cells, words=["model"])


def _curves(losses: Sequence[float], validation: Sequence[tuple[int, float]]) -> list[Curves]:
    every = max(1, len(losses) // POINTS)
    steps = range(1, len(losses) + 1, every)
    curves = [
        Curves(
            "loss", "Loss", f"Every {every}. step." if every > 1 else "", "step", "loss of the batch",
            [Series("loss", list(steps), [losses[step - 1] for step in steps], 0)],
        )
    ]  # fmt: skip
    if validation:
        places, accuracies = zip(*validation, strict=True)
        series = Series("student", places, [100 * a for a in accuracies], 1)
        curves.append(Curves("validation", "Validation", "", "step", "accuracy (%)", [series]))
    return curves
