"""Learning curves, what distillation adds, and the accuracy from a single client to the student."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from fedfuse.records.record import RoundRecord
from fedfuse.records.statistics import deviation, spread
from fedfuse.reports import measures
from fedfuse.reports.elements import Amount, Block, Choice, Section, Table, without_empty_columns
from fedfuse.reports.figure import Bar, Bars, Cell, Curves, Dash, Figure, Series
from fedfuse.reports.variants import Variant, baseline, by_result, gain

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
    """Return a table with one row per variant, the highest final accuracy first."""
    base = baseline(variants)
    rows: list[list[Cell | Amount]] = [
        [
            variant.name,
            len(variant.runs),
            accuracies(variant.row.final),
            None if variant is base else _above(variant, base),
            accuracies(variant.row.mean_over_rounds),
            accuracies(variant.row.best),
            accuracies(variant.last(lambda r: r.validation_accuracy)),
        ]
        for variant in by_result(variants)
    ]
    above = f"final, points above {base.name}"
    columns = ["algorithm", "seeds", "final / %", above, "mean over rounds / %", "best / %", "final on validation / %"]
    seeds = max(len(variant.runs) for variant in variants)
    caption = "Test accuracy, ± its standard deviation over seeds." if seeds > 1 else "Test accuracy."
    return without_empty_columns(
        Table("results", "Results", columns, rows, ("algorithm",), caption),
        {
            above: f"Points above {base.name} are paired by seed, ± their standard error."
            if seeds > 1
            else "With one seed, no difference is certain.",
            "best / %": "The best round is chosen on the test data, so that column is optimistic for every row.",
        },
    )


def accuracies(values: Sequence[float]) -> Amount | None:
    """Return the mean over seeds in percent, with the standard deviation."""
    if not values:
        return None
    spreads = {", deviation": 100 * deviation(values)} if len(values) > 1 else {}
    return Amount(spread(values), {"": 100 * statistics.fmean(values), **spreads})


def _above(variant: Variant, base: Variant) -> Amount | None:
    difference = gain(variant, base)
    if difference is None:
        return None
    error = None if difference.error is None else 100 * difference.error
    return Amount(difference.points(), {"": 100 * difference.mean, ", standard error": error})


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
        bars.append(Bar(variant.name, values, variant.colour, spreads if any(spreads) else (), _steps(values)))
    error = " The lines at each mark are one standard deviation over seeds." if any(b.deviation for b in bars) else ""
    return Bars(
        "ladder",
        "From client to student",
        "Mean accuracy over all rounds: a single client, the average of the clients, their ensemble, and the student "
        f"distilled from the ensemble. In brackets: points above the stage before.{error}",
        "",
        "accuracy / %",
        list(STAGES),
        bars,
        sideways=True,
        zoomed=True,
    )


def _steps(values: Sequence[float | None]) -> list[str]:
    """Return each value with its gain over the value before."""
    texts: list[str] = []
    before: float | None = None
    for value in values:
        step = "" if value is None or before is None else f" ({value - before:+.1f})"
        texts.append("" if value is None else f"{value:.1f}{step}")
        before = value if value is not None else before
    return texts


def _mean_over_rounds(variant: Variant, pick: Pick) -> list[float]:
    each = [[v for v in map(pick, run.history) if v is not None] for run in variant.runs]
    return [statistics.fmean(values) for values in each if values]
