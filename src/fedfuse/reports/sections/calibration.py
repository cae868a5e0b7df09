"""How sure the answers were, and how right (FedBE, Figure 8): for clients, ensemble and student."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedfuse.evaluate import BINS
from fedfuse.facts import ConfidenceBins
from fedfuse.reports import measures
from fedfuse.reports.elements import Block, Choice, Section
from fedfuse.reports.figure import Bar, Bars, Curves, Figure, Series
from fedfuse.reports.measures import Who
from fedfuse.reports.variants import Variant

FEW = 5  # answers that say nothing of a share
COLOURS: Mapping[str, int] = {"clients": 7, "average": 1, "ensemble": 2, "student": 0}


def section(variants: Sequence[Variant]) -> Section | None:
    options = {variant.name: _of(variant) for variant in variants}
    known = {name: figures for name, figures in options.items() if figures}
    if not known:
        return None
    blocks: list[Block] = [*next(iter(known.values()))] if len(known) == 1 else [Choice("calibration", known)]
    return Section("calibration", "Confidence", blocks)


def _of(variant: Variant) -> list[Figure]:
    who: tuple[Who, ...] = ("clients", "average", "ensemble", "student")
    bins: dict[str, ConfidenceBins] = {name: total for name in who if (total := _last(variant, name)) is not None}
    if not bins and (model := _model(variant)) is not None:
        return [_reliability(variant, {"model": model}), _histogram(variant, "model", model)]
    if not bins:
        return []
    histograms = [_histogram(variant, name, total) for name, total in bins.items() if name != "average"]
    return [_reliability(variant, bins), *histograms]


def _last(variant: Variant, who: Who) -> ConfidenceBins | None:
    """Of the last round of each seed, added up."""
    each = [measures.confidence(run.history[-1], who) for run in variant.runs]
    return measures.total([bins for bins in each if bins is not None])


def _model(variant: Variant) -> ConfidenceBins | None:
    """Of the reported models on all test data, where the algorithm itself records nothing."""
    each = [details.confidence for run in variant.runs for details in run.reported_details()]
    return measures.total(each)


def _reliability(variant: Variant, bins: Mapping[str, ConfidenceBins]) -> Figure:
    series = []
    for who, of in bins.items():
        full = [i for i, n in enumerate(of.count) if n >= FEW]
        series.append(
            Series(
                f"{who} (error {100 * of.calibration_error:.1f} %)",
                [100 * of.total[i] / of.count[i] for i in full],
                [100 * of.right[i] / of.count[i] for i in full],
                COLOURS.get(who, 0),
            )
        )
    return Curves(
        f"reliability{variant.suffix}",
        f"Reliability: {variant.name}",
        "Last round. On the dotted line, answers are right as often as their confidence says; below it they are too "
        "confident. "
        f"The error is the expected calibration error over {BINS} bins; bins of under {FEW} answers are left out.",
        "mean confidence / %",
        "right answers / %",
        series,
        diagonal=True,
        whole=False,
    )


def _histogram(variant: Variant, who: str, bins: ConfidenceBins) -> Figure:
    n = max(1, sum(bins.count))
    edges = [f"{100 * i / BINS:.0f}" for i in range(BINS)]
    return Bars(
        f"confidence-{who}{variant.suffix}",
        f"Confidence of the {who}: {variant.name}",
        f"Last round: {n:,} answers by their confidence, right ones and wrong ones. A bin is named by its lower edge.",
        "confidence / %",
        "answers / %",
        edges,
        [Bar("right", [100 * v / n for v in bins.right], 0), Bar("wrong", [100 * v / n for v in bins.wrong], 1)],
        stacked=True,
    )
