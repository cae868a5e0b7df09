"""The summary of the page: the result, the difference from the baseline, and how certain it is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from fedfuse.records.record import accuracies
from fedfuse.records.statistics import best_round, deviation, spread
from fedfuse.reports import measures
from fedfuse.reports.elements import Block, Card, Section, Words
from fedfuse.reports.sections.cost import duration, size
from fedfuse.reports.variants import Variant


def title(variants: Sequence[Variant]) -> str:
    experiment = variants[0].runs[0].experiment.name
    names = ", ".join(variant.name for variant in variants) if len(variants) <= 4 else f"{len(variants)} algorithms"
    return f"{experiment}: {names}"


def section(variants: Sequence[Variant], targets: Sequence[float]) -> Section:
    leader = max(variants, key=lambda variant: statistics.fmean(variant.row.final))
    texts = [state] if (state := _state(variants)) else []
    texts.append(_result(leader, alone=len(variants) == 1))
    if len(variants) > 1:
        texts += [_against(leader, variants)]
    texts += [text for text in (_target(leader, variants, targets), _distillation(leader)) if text]
    blocks: list[Block] = [Words(" ".join(texts))]
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


def _result(leader: Variant, *, alone: bool) -> str:
    row, seeds = leader.row, len(leader.runs)
    rounds = max(max(accuracies(run.history)) for run in leader.runs)
    over = f" over {seeds} seeds" if seeds > 1 else ""
    who = leader.name if alone else f"{leader.name} has the highest final accuracy: it"
    when = f" in round {best_round(leader.runs[0])}" if seeds == 1 else ""
    unit = "round" if rounds == 1 else "rounds"
    final = f"{who} reaches {spread(row.final)} % test accuracy{over} after {rounds} {unit}"
    return f"{final}; its best is {spread(row.best)} %{when}."


def baseline(variants: Sequence[Variant]) -> Variant:
    """Return FedAvg if present (it then comes first), else the first variant."""
    return variants[0]


def _against(leader: Variant, variants: Sequence[Variant]) -> str:
    base = baseline(variants)
    if base is leader:
        second = max(
            (variant for variant in variants if variant is not leader),
            key=lambda other: statistics.fmean(other.row.final),
        )
        return f"It is the baseline; the second, {second.name}, is {_gap(leader, second)}."
    return f"The baseline {base.name} is {_gap(leader, base)}."


def _gap(a: Variant, b: Variant) -> str:
    """Return how far `b` is below `a`, paired by common seed, since such runs share partition and cohorts."""
    ours, theirs = dict(zip(a.seeds, a.row.final, strict=True)), dict(zip(b.seeds, b.row.final, strict=True))
    both = sorted(ours.keys() & theirs.keys())
    if not both:
        return f"{_points(100 * (statistics.fmean(a.row.final) - statistics.fmean(b.row.final)))} (no common seed)"
    gaps = [100 * (ours[seed] - theirs[seed]) for seed in both]
    if len(gaps) == 1:
        return f"{_points(gaps[0])} (one seed: chance is not ruled out)"
    return f"{_points(statistics.fmean(gaps), deviation(gaps))}, over the same {len(gaps)} seeds"


def _points(gap: float, spread: float | None = None) -> str:
    size = f"{abs(gap):.2f}" if spread is None else f"{abs(gap):.2f} ± {spread:.2f}"
    return f"{size} points {'below' if gap >= 0 else 'above'}"


def _target(leader: Variant, variants: Sequence[Variant], targets: Sequence[float]) -> str:
    if not targets:
        return ""
    target = targets[-1]
    if None in leader.row.reached(target):
        count = sum(r is not None for r in leader.row.reached(target))
        return f"The target of {100 * target:g} % is reached by {count} of its {len(leader.runs)} runs."
    text = f"It reaches {100 * target:g} % in {leader.row.rounds_to(target)} rounds"
    base = baseline(variants)
    return f"{text}." if base is leader else f"{text}, {base.name} in {base.row.rounds_to(target)}."


def _distillation(variant: Variant) -> str:
    """Return the gain of the student over the average, and its distance from the ensemble."""
    before, after, above = (
        variant.over_rounds(pick) for pick in (measures.average, measures.student, measures.ensemble)
    )
    if not before or before.rounds != after.rounds:
        return ""
    gain = 100 * statistics.fmean(a - b for a, b in zip(after.mean, before.mean, strict=True))
    worse = sum(a < b for a, b in zip(after.mean, before.mean, strict=True))
    text = f"Distillation changes the accuracy of the average by {gain:+.2f} points (mean over rounds)"
    text += f", and lowers it in {worse} of {len(after.rounds)}" if worse else ""
    if above.rounds == after.rounds:
        left = 100 * statistics.fmean(e - a for e, a in zip(above.mean, after.mean, strict=True))
        side = "above" if left >= 0 else "below"
        text += f"; the ensemble is {abs(left):.2f} points {side} the student"
    return f"{text}."


def _cards(leader: Variant, variants: Sequence[Variant], targets: Sequence[float]) -> list[Card]:
    seeds = len(leader.runs)
    over = f"{leader.name}, {seeds} seeds" if seeds > 1 else leader.name
    cards = [
        Card("final accuracy", f"{spread(leader.row.final)} %", over),
        Card("best accuracy", f"{spread(leader.row.best)} %", over),
    ]
    if targets:
        cards.append(Card(f"rounds to {100 * targets[-1]:g} %", leader.row.rounds_to(targets[-1]), leader.name))
    total = statistics.fmean(sum(r.bytes_up + r.bytes_down for r in run.history) for run in leader.runs)
    seconds = sum(variant.row.seconds for variant in variants)
    runs = sum(len(variant.runs) for variant in variants)
    cards.append(Card("sent up and down", size(total), f"{leader.name}, one run"))
    cards.append(Card("time", duration(seconds), f"{runs} runs" if runs > 1 else "one run"))
    return cards
