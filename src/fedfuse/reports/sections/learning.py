"""Learning curves, what distillation adds, and the accuracy from a single client to the student."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from fedfuse.records.record import RoundRecord
from fedfuse.records.statistics import deviation, spread
from fedfuse.reports import measures
from fedfuse.reports.elements import Block, Choice, Section, Table
from fedfuse.reports.figure import Bar, Bars, Cell, Curves, Dash, Figure, Series
from fedfuse.reports.variants import Variant

Pick = Callable[[RoundRecord], float | None]

STAGES: dict[str, Pick] = {
    "mean client": measures.mean_client,
    "average": measures.average,
    "ensemble": measures.ensemble,
    "student": measures.student,
}


def percent(values: Sequence[float]) -> list[float]:
    return [100 * v for v in values]


def section(variants: Sequence[Variant], target: float | None) -> Section:
    blocks: list[Block] = [_curves(variants, target), _losses(variants)]
    if len(variants) > 1 or len(variants[0].runs) > 1:
        blocks.append(results(variants))
    return Section("learning", "Learning", blocks)


def _series(
    variant: Variant, pick: Pick, name: str, colour: int, dash: Dash = "solid", scale: float = 100
) -> Series | None:
    band = variant.over_rounds(pick)
    if not band:
        return None
    spread = [scale * d for d in band.deviation] if band.most > 1 else []
    return Series(name, band.rounds, [scale * v for v in band.mean], colour, spread, dash)


def _all(variants: Sequence[Variant], pick: Pick, scale: float = 100) -> list[Series]:
    series = [_series(variant, pick, variant.name, variant.colour, scale=scale) for variant in variants]
    return [s for s in series if s is not None]


def _bands(variants: Sequence[Variant]) -> str:
    most = max(len(variant.runs) for variant in variants)
    return f" Lines are means over up to {most} seeds, bands one standard deviation." if most > 1 else ""


def _curves(variants: Sequence[Variant], target: float | None) -> Figure:
    levels = {} if target is None else {f"target {100 * target:g} %": 100 * target}
    return Curves(
        "learning-curves",
        "Test accuracy",
        f"After each evaluated round, on the test data.{_bands(variants)}",
        "round",
        "test accuracy / %",
        _all(variants, lambda r: r.test_accuracy),
        levels,
    )


def _losses(variants: Sequence[Variant]) -> Figure:
    return Curves(
        "loss-curves",
        "Test loss",
        f"Mean cross entropy on the test data.{_bands(variants)}",
        "round",
        "test loss / nats",
        _all(variants, lambda r: None if r.test_loss != r.test_loss else r.test_loss, 1),
    )


def results(variants: Sequence[Variant]) -> Table:
    """Return a table with one row per variant."""
    rows: list[list[Cell]] = [
        [
            variant.name,
            len(variant.runs),
            spread(variant.row.best),
            spread(variant.row.final),
            spread(variant.row.mean_over_rounds),
            *_validation(variant),
        ]
        for variant in variants
    ]
    columns = ["algorithm", "seeds", "best / %", "final / %", "mean over rounds / %", "final on validation / %"]
    return Table(
        "results",
        "Results",
        columns,
        rows,
        ("algorithm",),
        "Test accuracy after evaluated rounds, mean and standard deviation over seeds. The best round is chosen on the "
        "test data, so that column is optimistic for every row.",
    )


def _validation(variant: Variant) -> list[str]:
    values = variant.last(lambda r: r.validation_accuracy)
    return [spread(values) if values else "none"]


def distillation(variants: Sequence[Variant]) -> Section | None:
    """Show accuracy before and after distillation, with the ensemble (FedDF, Figures 4 and 15 to 17), and by stage."""
    distilling = [variant for variant in variants if variant.over_rounds(measures.student)]
    if not distilling:
        return None
    options = {variant.name: _before_after(variant) for variant in distilling}
    blocks: list[Block] = [_ladder(distilling), *_disagreement(variants)]
    blocks += (
        list(options.values()) if len(options) == 1 else [Choice("before-after", {n: [f] for n, f in options.items()})]
    )
    return Section("distillation", "Distillation", blocks)


def _disagreement(variants: Sequence[Variant]) -> list[Figure]:
    series = _all(variants, measures.disagreement)
    caption = (
        "How often two teachers give different answers, over all pairs and rows. Ensembles gain where they differ."
    )
    figure = Curves("disagreement", "Teachers' disagreement", caption, "round", "pairs that disagree / %", series)
    return [figure] if series else []


def _before_after(variant: Variant) -> Figure:
    curves: tuple[tuple[str, Pick, int, Dash], ...] = (
        ("ensemble", measures.ensemble, 2, "dot"),
        ("after: the student", measures.student, 0, "solid"),
        ("before: the average", measures.average, 1, "dash"),
        ("mean client", measures.mean_client, 7, "dot"),
    )
    series = [_series(variant, pick, name, colour, dash) for name, pick, colour, dash in curves]
    return Curves(
        f"before-after{variant.suffix}",
        f"Before and after distillation: {variant.name}",
        f"On the probe (the first test examples). The student learns from the ensemble.{_bands([variant])}",
        "round",
        "accuracy / %",
        [s for s in series if s is not None],
    )


def _ladder(variants: Sequence[Variant]) -> Figure:
    """Return the accuracy of mean client, average, ensemble and student, as the mean over all rounds of each seed."""
    bars = []
    for variant in variants:
        over = {stage: _mean_over_rounds(variant, pick) for stage, pick in STAGES.items()}
        values = [100 * statistics.fmean(v) if v else None for v in over.values()]
        spreads = [100 * deviation(v) if v else 0.0 for v in over.values()]
        bars.append(Bar(variant.name, values, variant.colour, spreads if any(spreads) else ()))
    return Bars(
        "ladder",
        "From client to student",
        "Mean accuracy over all rounds: a single client, the average of the clients, their ensemble, and the student "
        "distilled from the ensemble.",
        "",
        "accuracy / %",
        list(STAGES),
        bars,
        sideways=True,
    )


def _mean_over_rounds(variant: Variant, pick: Pick) -> list[float]:
    each = [[v for v in map(pick, run.history) if v is not None] for run in variant.runs]
    return [statistics.fmean(values) for values in each if values]
