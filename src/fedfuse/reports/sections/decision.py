"""The sentence at the top of the page: which algorithm, what it gains, what it costs, and how sure that is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from fedfuse.records.amounts import duration, size
from fedfuse.records.statistics import Difference, spread
from fedfuse.reports.sections.cost import all_bytes_of, seconds_of
from fedfuse.reports.variants import Variant, baseline, by_result, gain
from fedfuse.sweeps.results import Sweep


def decision(variants: Sequence[Variant]) -> str:
    """Return the sentence about runs or a comparison."""
    leader, *others = by_result(variants)
    if not others:
        return _alone(leader)
    base = baseline(variants)
    other = others[0] if base is leader else base
    difference = gain(leader, other)
    ends = f"ends highest with {spread(leader.row.final)} % test accuracy"
    if leader is base:
        return f"Stay with {base.name}: it {ends}, {_gap(difference, leader, other)} the second, {other.name}."
    cost = f"It costs {_cost(leader, base)}."
    if difference is None or difference.error is None or difference.clear:
        return f"Choose {leader.name}: it {ends}, {_gap(difference, leader, base)} {base.name}. {cost}"
    lead = f"its lead of {_points(difference)} over {base.name} is {certainty(difference)}"
    return f"No clear winner: {leader.name} {ends}, but {lead}. {cost}{_clearly_above(others, base)}"


def _clearly_above(variants: Sequence[Variant], base: Variant) -> str:
    """Name those that are clearly above the baseline, though another ends higher."""
    gains = {variant.name: gain(variant, base) for variant in variants if variant is not base}
    clear = [f"{name} ({_points(d)})" for name, d in gains.items() if d is not None and d.clear and d.mean > 0]
    return f" Above {base.name} by more than two standard errors: {', '.join(clear)}." if clear else ""


def _alone(variant: Variant) -> str:
    seeds, rounds = len(variant.runs), max(len(run.history) for run in variant.runs)
    cost = f"{size(all_bytes_of(variant))} sent and {duration(seconds_of(variant))}"
    over = f" over {seeds} seeds" if seeds > 1 else ""
    unit = "round" if rounds == 1 else "rounds"
    text = f"{variant.name} ends at {spread(variant.row.final)} % test accuracy{over} after {rounds} {unit}"
    text += f", for {cost} a run." if seeds > 1 else f", for {cost}."
    doubt = "one seed, and no other algorithm" if seeds == 1 else "no other algorithm"
    return f"{text} This is {doubt}: fedfuse compare shows what is gained, and how surely."


def _gap(difference: Difference | None, ours: Variant, theirs: Variant) -> str:
    """Return `7.20 ± 0.90 points above (clear over 5 seeds)`."""
    if difference is None:
        mean = statistics.fmean(ours.row.final) - statistics.fmean(theirs.row.final)
        return f"{100 * mean:.2f} points (no common seed, so not paired) above"
    return f"{_points(difference)} ({certainty(difference)}) above"


def _points(difference: Difference) -> str:
    error = "" if difference.error is None else f" ± {100 * difference.error:.2f}"
    return f"{100 * difference.mean:.2f}{error} points"


def certainty(difference: Difference) -> str:
    """Return how sure a difference is, in words."""
    if difference.error is None:
        return "one seed: chance is not ruled out"
    if not difference.clear:
        return f"no clear difference over {difference.seeds} seeds"
    low, high = (100 * end for end in difference.interval())
    if low <= 0 <= high:
        return f"likely, but {difference.seeds} seeds are few: the 95 % interval is {low:+.1f} to {high:+.1f}"
    return f"clear over {difference.seeds} seeds: the 95 % interval is {low:+.1f} to {high:+.1f}"


def _cost(ours: Variant, base: Variant) -> str:
    ratios = {
        "bytes": times(all_bytes_of(ours), all_bytes_of(base)),
        "time": times(seconds_of(ours), seconds_of(base)),
    }
    return " and ".join(f"{ratio}{'' if ratio == 'the same' else ' the'} {what}" for what, ratio in ratios.items())


def times(ours: float, theirs: float) -> str:
    """Return a ratio as `2.3 times`; `the same` where it rounds to 1."""
    ratio = f"{ours / theirs:.2g}" if theirs else "unknown"
    return "the same" if ratio == "1" else f"{ratio} times"


def of_sweep(sweep: Sweep, variants: Sequence[Variant]) -> str:
    """Return the sentence about a sweep, whose choice is by validation data."""
    if not sweep.ranked:
        return "No trial is complete yet."
    best, *others = sweep.ranked
    found = {variant.name: variant for variant in variants}
    mine = found.get(f"trial {best.number}")
    text = f"Choose trial {best.number}: {100 * (best.validation or 0):.2f} % on validation data"
    if others:
        lead = (best.validation or 0) - (others[0].validation or 0)
        second = f"trial {others[0].number}"
        text += f", {_validation_gap(lead, mine, found.get(second))} the second, {second}"
    if mine is None:
        return f"{text}."
    return f"{text}. A run of it sends {size(all_bytes_of(mine))} and takes {duration(seconds_of(mine))}."


def _validation_gap(lead: float, ours: Variant | None, theirs: Variant | None) -> str:
    finals = [v.last(lambda r: r.validation_accuracy) if v else [] for v in (ours, theirs)]
    if not finals[0] or len(finals[0]) != len(finals[1]):
        return f"{100 * lead:.2f} points above"
    difference = replace(Difference.paired(*finals), mean=lead)
    return f"{_points(difference)} ({certainty(difference)}) above"
