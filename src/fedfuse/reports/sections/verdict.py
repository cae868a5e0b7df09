"""The verdict in detail: key numbers of the leader, targets, ties, and what distillation added."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from fedfuse.records.amounts import duration, size
from fedfuse.records.statistics import best_round, spread
from fedfuse.reports import measures
from fedfuse.reports.elements import Block, Card, Section, Words
from fedfuse.reports.sections.cost import all_bytes_of, seconds_of
from fedfuse.reports.sections.decision import certainty, times
from fedfuse.reports.variants import Variant, baseline, by_result, gain


def title(variants: Sequence[Variant]) -> str:
    experiment = variants[0].runs[0].experiment.name
    names = ", ".join(variant.name for variant in variants) if len(variants) <= 4 else f"{len(variants)} algorithms"
    return f"{experiment}: {names}"


def section(variants: Sequence[Variant], targets: Sequence[float]) -> Section:
    leader = by_result(variants)[0]
    texts = [
        _state(variants),
        _ties(leader, variants),
        _target(leader, variants, targets),
        _distillation(leader),
    ]
    text = " ".join(text for text in texts if text)
    blocks: list[Block] = [Words(text)] if text else []
    return Section("verdict", "Verdict", blocks, _cards(leader, variants, targets))


def _state(variants: Sequence[Variant]) -> str:
    """Return a note that runs are unfinished, or an empty text."""
    runs = [run for variant in variants for run in variant.runs]
    unfinished = [run for run in runs if not run.finished]
    if not unfinished:
        return ""
    if len(runs) == 1:
        return f"Not finished: {len(unfinished[0].history)} of {unfinished[0].rounds} rounds are recorded."
    return f"Not finished: {len(unfinished)} of {len(runs)} runs have rounds left; this page shows the rounds so far."


def _ties(leader: Variant, variants: Sequence[Variant]) -> str:
    """Name the variants that are not clearly below the leader; the sentence at the top tells of the baseline."""
    others = [variant for variant in by_result(variants) if variant not in (leader, baseline(variants))]
    close = []
    for other in others:
        difference = gain(leader, other)
        if difference is not None and difference.error is not None and not difference.clear:
            close.append(f"{other.name} is {100 * difference.mean:.2f} ± {100 * difference.error:.2f} points below")
    return f"{'; '.join(close)}: no clear difference from {leader.name}." if close else ""


def _target(leader: Variant, variants: Sequence[Variant], targets: Sequence[float]) -> str:
    if not targets:
        return ""
    target = targets[-1]
    if None in leader.row.reached(target):
        count = sum(r is not None for r in leader.row.reached(target))
        return f"The target of {100 * target:g} % is reached by {count} of {leader.name}'s {len(leader.runs)} runs."
    text = f"{leader.name} reaches {100 * target:g} % in {leader.row.rounds_to(target)} rounds"
    base = baseline(variants)
    return f"{text}." if base is leader else f"{text}, {base.name} in {base.row.rounds_to(target)}."


def _distillation(variant: Variant) -> str:
    """Return the gain of the student over the average, and its distance from the ensemble."""
    before, after, above = (
        variant.over_rounds(pick) for pick in (measures.average, measures.student, measures.ensemble)
    )
    if not before or before.rounds != after.rounds:
        return ""
    change = 100 * statistics.fmean(a - b for a, b in zip(after.mean, before.mean, strict=True))
    worse = sum(a < b for a, b in zip(after.mean, before.mean, strict=True))
    text = f"Distillation changes the accuracy of the average by {change:+.2f} points (mean over rounds)"
    text += f", and lowers it in {worse} of {len(after.rounds)}" if worse else ""
    if above.rounds == after.rounds:
        left = 100 * statistics.fmean(e - a for e, a in zip(above.mean, after.mean, strict=True))
        side = "above" if left >= 0 else "below"
        text += f"; the ensemble is {abs(left):.2f} points {side} the student"
    return f"{text}."


def _cards(leader: Variant, variants: Sequence[Variant], targets: Sequence[float]) -> list[Card]:
    """All cards are about the leader, so that none contradicts the tables."""
    base, seeds = baseline(variants), len(leader.runs)
    cards = [Card("final accuracy", f"{spread(leader.row.final)} %", leader.name + (f", {seeds} seeds" * (seeds > 1)))]
    if len(variants) == 1:
        when = f"in round {best_round(leader.runs[0])}, " if seeds == 1 else ""
        cards.append(Card("best accuracy", f"{spread(leader.row.best)} %", f"{when}chosen on test data"))
    elif leader is not base and (difference := gain(leader, base)) is not None:
        error = "" if difference.error is None else f" ± {100 * difference.error:.2f}"
        words = certainty(difference).partition(":")[0].partition(",")[0]
        cards.append(Card(f"points above {base.name}", f"{100 * difference.mean:+.2f}{error}", words))
    if targets:
        cards.append(Card(f"rounds to {100 * targets[-1]:g} %", leader.row.rounds_to(targets[-1]), leader.name))
    sent, seconds = all_bytes_of(leader), seconds_of(leader)
    ratios = [times(sent, all_bytes_of(base)), times(seconds, seconds_of(base))]
    below = (
        ["one run"] * 2
        if leader is base
        else [f"{ratio} {base.name}'s".replace("the same", "the same as") for ratio in ratios]
    )
    return [*cards, Card("sent by a run", size(sent), below[0]), Card("time of a run", duration(seconds), below[1])]
