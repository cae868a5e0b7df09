"""Confidence against accuracy (FedBE, Figure 8): clients and posterior samples one by one, their ensemble, student."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fedfuse.evaluate import BINS
from fedfuse.facts import ConfidenceBins
from fedfuse.reports import measures
from fedfuse.reports.elements import Block, Choice, Section
from fedfuse.reports.figure import Bar, Bars, Curves, Figure, Series
from fedfuse.reports.measures import Who
from fedfuse.reports.variants import Variant

FEW = 5  # bins with fewer answers are omitted
COLOURS: Mapping[str, int] = {"clients": 7, "samples": 3, "average": 1, "ensemble": 2, "student": 0}


def section(variants: Sequence[Variant]) -> Section | None:
    options = {variant.name: figures for variant in variants if (figures := _of(variant))}
    if not options:
        return None
    blocks: list[Block] = [*next(iter(options.values()))] if len(options) == 1 else [Choice("calibration", options)]
    return Section("calibration", "Confidence", blocks)


def _of(variant: Variant) -> list[Figure]:
    who: tuple[Who, ...] = ("clients", "samples", "average", "ensemble", "student")
    bins: dict[str, ConfidenceBins] = {name: total for name in who if (total := _last(variant, name)) is not None}
    if not bins and (model := _model(variant)) is not None:
        return [_reliability(variant, {"model": model}), _histogram(variant, "model", model)]
    if not bins:
        return []
    # The average is drawn where there are samples, whose centre it is.
    drawn = {name: total for name, total in bins.items() if name != "average" or "samples" in bins}
    histograms = [_histogram(variant, name, total) for name, total in drawn.items()]
    return [_reliability(variant, bins), *histograms]


def _last(variant: Variant, who: Who) -> ConfidenceBins | None:
    """Return the sum over the last rounds of all seeds."""
    each = [measures.confidence(run.history[-1], who) for run in variant.runs]
    return measures.total([bins for bins in each if bins is not None])


def _model(variant: Variant) -> ConfidenceBins | None:
    """Return the sum over the reported models on all test data, for algorithms that record no confidence."""
    each = [details.confidence for run in variant.runs for details in run.reported_details()]
    return measures.total(each)


def _reliability(variant: Variant, bins: Mapping[str, ConfidenceBins]) -> Figure:
    series = []
    for who, counts in bins.items():
        full = [i for i, n in enumerate(counts.count) if n >= FEW]
        series.append(
            Series(
                f"{who} (error {100 * counts.calibration_error:.1f} %)",
                [100 * counts.total[i] / counts.count[i] for i in full],
                [100 * counts.right[i] / counts.count[i] for i in full],
                COLOURS.get(who, 0),
            )
        )
    return Curves(
        f"reliability{variant.suffix}",
        f"Reliability: {variant.name}",
        f"{_when(bins)}. On the dotted line, accuracy equals confidence; below it, answers are overconfident. The "
        f"error is the expected calibration error over {BINS} bins; bins with fewer than {FEW} answers are omitted.",
        "mean confidence / %",
        "right answers / %",
        series,
        diagonal=True,
        whole=False,
    )


def _when(names: Collection[str]) -> str:
    return "Last evaluated round" if "model" in names else "Last round"


def _histogram(variant: Variant, who: str, bins: ConfidenceBins) -> Figure:
    n = max(1, sum(bins.count))
    edges = [f"{100 * i / BINS:.0f}" for i in range(BINS)]
    return Bars(
        f"confidence-{who}{variant.suffix}",
        f"Confidence of the {who}: {variant.name}",
        f"{_when([who])}: {n:,} answers by confidence, right and wrong. Each bin is labelled by its lower edge.",
        "confidence / %",
        "answers / %",
        edges,
        [Bar("right", [100 * v / n for v in bins.right], 0), Bar("wrong", [100 * v / n for v in bins.wrong], 1)],
        stacked=True,
    )
