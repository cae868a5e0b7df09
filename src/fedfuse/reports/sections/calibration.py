"""How sure the answers were, and how right (FedBE, Figure 8): for clients, ensemble and student."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedfuse.evaluate import BINS
from fedfuse.reports import facts
from fedfuse.reports.elements import Block, Choice, Section
from fedfuse.reports.figure import Bar, Bars, Curves, Figure, Series
from fedfuse.reports.variants import Line

Counts = Mapping[str, Sequence[float]]
FEW = 5  # answers that tell nothing of a share
WHO = {"clients": 7, "average": 1, "ensemble": 2, "student": 0}  # and the colour of each


def section(lines: Sequence[Line]) -> Section | None:
    options = {line.name: _of(line) for line in lines}
    known = {name: figures for name, figures in options.items() if figures}
    if not known:
        return None
    blocks: list[Block] = [*next(iter(known.values()))] if len(known) == 1 else [Choice("calibration", known)]
    return Section("calibration", "Confidence", blocks)


def _of(line: Line) -> list[Figure]:
    seen = {who: counts for who in WHO if (counts := _last(line, who)) is not None}
    if not seen and (model := _model(line)) is not None:
        seen = {"model": model}
    if not seen:
        return []
    return [
        _reliability(line, seen),
        *(_histogram(line, w, c) for w, c in seen.items() if w != "average"),
    ]


def _last(line: Line, who: str) -> Counts | None:
    """Of the last round of each seed, added up."""
    each = [facts.confidence(run.history[-1], who) for run in line.runs]
    known = [c for c in each if c is not None]
    return facts.summed(known) if known else None


def _model(line: Line) -> Counts | None:
    """Of the reported models on all test data, where the algorithm itself records nothing."""
    each = []
    for run in line.runs:
        models = run.evaluation.get("models", {})
        each += [models[a]["confidence"] for a in run.federation.get("reported", ()) if a in models]
    return facts.summed(each) if each else None


def _total(counts: Counts) -> list[float]:
    return [r + w for r, w in zip(counts["right"], counts["wrong"], strict=True)]


def error(counts: Counts) -> float:
    """The expected calibration error: the mean gap between confidence and accuracy, over answers."""
    gaps = [abs(r - t) for r, t in zip(counts["right"], counts["total"], strict=True)]
    return sum(gaps) / max(1.0, sum(_total(counts)))


def _reliability(line: Line, seen: Mapping[str, Counts]) -> Figure:
    series = []
    for who, counts in seen.items():
        total = _total(counts)
        full = [i for i, n in enumerate(total) if n >= FEW]
        series.append(
            Series(
                f"{who} (error {100 * error(counts):.1f} %)",
                [100 * counts["total"][i] / total[i] for i in full],
                [100 * counts["right"][i] / total[i] for i in full],
                WHO.get(who, 0),
            )
        )
    return Curves(
        f"reliability{line.suffix}",
        f"Reliability: {line.name}",
        "Last round. On the dotted line, answers are right as often as they are sure; below it they are too sure. "
        f"The error is the expected calibration error over {BINS} bins; bins of under {FEW} answers are left out.",
        "mean confidence / %",
        "right answers / %",
        series,
        diagonal=True,
        whole=False,
    )


def _histogram(line: Line, who: str, counts: Counts) -> Figure:
    n = max(1.0, sum(_total(counts)))
    bins = [f"{100 * i / BINS:.0f}" for i in range(BINS)]
    return Bars(
        f"confidence-{who}{line.suffix}",
        f"Confidence of the {who}: {line.name}",
        f"Last round: {int(n):,} answers by their confidence, right ones and wrong ones. "
        "Bins bear the name of their lower edge.",
        "confidence / %",
        "answers / %",
        bins,
        [
            Bar("right", [100 * v / n for v in counts["right"]], 0),
            Bar("wrong", [100 * v / n for v in counts["wrong"]], 1),
        ],
        stacked=True,
    )
