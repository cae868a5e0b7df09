"""How the runs went: learning curves, what distillation added, the ladder from a client to the student."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from fedfuse.records.record import RoundRecord
from fedfuse.records.statistics import deviation, spread
from fedfuse.reports import facts
from fedfuse.reports.elements import Block, Choice, Section, Table
from fedfuse.reports.figure import Bar, Bars, Cell, Curves, Dash, Figure, Series
from fedfuse.reports.variants import Line

Pick = Callable[[RoundRecord], float | None]

STAGES: dict[str, Pick] = {
    "mean client": facts.mean_client,
    "average": facts.average,
    "ensemble": facts.ensemble,
    "student": facts.student,
}


def percent(values: Sequence[float]) -> list[float]:
    return [100 * v for v in values]


def section(lines: Sequence[Line], target: float | None) -> Section:
    blocks: list[Block] = [_curves(lines, target), _losses(lines)]
    if len(lines) > 1 or len(lines[0].runs) > 1:
        blocks.append(results(lines))
    return Section("learning", "Learning", blocks)


def _series(line: Line, pick: Pick, name: str, colour: int, dash: Dash = "solid", scale: float = 100) -> Series | None:
    band = line.over_rounds(pick)
    if not band:
        return None
    spread = [scale * d for d in band.deviation] if band.most > 1 else []
    return Series(name, band.rounds, [scale * v for v in band.mean], colour, spread, dash)


def _all(lines: Sequence[Line], pick: Pick, scale: float = 100) -> list[Series]:
    made = [_series(line, pick, line.name, line.colour, scale=scale) for line in lines]
    return [s for s in made if s is not None]


def _bands(lines: Sequence[Line]) -> str:
    most = max(len(line.runs) for line in lines)
    return f" Lines are means over up to {most} seeds, bands one standard deviation." if most > 1 else ""


def _curves(lines: Sequence[Line], target: float | None) -> Figure:
    levels = {} if target is None else {f"target {100 * target:g} %": 100 * target}
    return Curves(
        "learning-curves",
        "Test accuracy",
        f"After each round, on the test data.{_bands(lines)}",
        "round",
        "test accuracy / %",
        _all(lines, lambda r: r.test_accuracy),
        levels,
    )


def _losses(lines: Sequence[Line]) -> Figure:
    return Curves(
        "loss-curves",
        "Test loss",
        f"Mean cross entropy on the test data.{_bands(lines)}",
        "round",
        "test loss / nats",
        _all(lines, lambda r: None if r.test_loss != r.test_loss else r.test_loss, 1),
    )


def results(lines: Sequence[Line]) -> Table:
    """Every line in one row."""
    rows: list[list[Cell]] = [
        [
            line.name,
            len(line.runs),
            spread(line.row.best),
            spread(line.row.final),
            spread(line.row.mean_over_rounds),
            *_validation(line),
        ]
        for line in lines
    ]
    columns = ["algorithm", "seeds", "best / %", "final / %", "mean over rounds / %", "final on validation / %"]
    return Table(
        "results",
        "Results",
        columns,
        rows,
        ("algorithm",),
        "Test accuracy, mean and standard deviation over seeds. The best round is chosen on the test data, "
        "so that column flatters all alike.",
    )


def _validation(line: Line) -> list[str]:
    values = line.last(lambda r: r.validation_accuracy)
    return [spread(values) if values else "none"]


def distillation(lines: Sequence[Line]) -> Section | None:
    """Before and after, with the ensemble above (FedDF, Figures 4 and 15 to 17), and the ladder of gains."""
    taught = [line for line in lines if line.over_rounds(facts.student)]
    if not taught:
        return None
    options = {line.name: _before_after(line) for line in taught}
    blocks: list[Block] = [_ladder(taught), *_disagreement(lines)]
    blocks += (
        list(options.values()) if len(options) == 1 else [Choice("before-after", {n: [f] for n, f in options.items()})]
    )
    return Section("distillation", "Distillation", blocks)


def _disagreement(lines: Sequence[Line]) -> list[Figure]:
    series = _all(lines, facts.disagreement)
    caption = (
        "How often two teachers give different answers, over all pairs and rows. An ensemble gains where they differ."
    )
    figure = Curves("disagreement", "Teachers' disagreement", caption, "round", "pairs that disagree / %", series)
    return [figure] if series else []


def _before_after(line: Line) -> Figure:
    ways: tuple[tuple[str, Pick, int, Dash], ...] = (
        ("ensemble", facts.ensemble, 2, "dot"),
        ("after: the student", facts.student, 0, "solid"),
        ("before: the average", facts.average, 1, "dash"),
        ("mean client", facts.mean_client, 7, "dot"),
    )
    made = [_series(line, pick, name, colour, dash) for name, pick, colour, dash in ways]
    return Curves(
        f"before-after{line.suffix}",
        f"Before and after distillation: {line.name}",
        f"On the probe, the first test examples. The ensemble is what the student learns from.{_bands([line])}",
        "round",
        "accuracy / %",
        [s for s in made if s is not None],
    )


def _ladder(lines: Sequence[Line]) -> Figure:
    """Mean client, average, ensemble, student: the mean over all rounds of each seed."""
    bars = []
    for line in lines:
        over = {stage: _mean_over_rounds(line, pick) for stage, pick in STAGES.items()}
        values = [100 * statistics.fmean(v) if v else None for v in over.values()]
        spreads = [100 * deviation(v) if v else 0.0 for v in over.values()]
        bars.append(Bar(line.name, values, line.colour, spreads if any(spreads) else ()))
    return Bars(
        "ladder",
        "The ladder of gains",
        "Accuracy in the mean over all rounds: a client alone, the clients' average, their ensemble, and the student "
        "that the ensemble taught.",
        "",
        "accuracy / %",
        list(STAGES),
        bars,
        sideways=True,
    )


def _mean_over_rounds(line: Line, pick: Pick) -> list[float]:
    each = [[v for v in map(pick, run.history) if v is not None] for run in line.runs]
    return [statistics.fmean(values) for values in each if values]
