"""The page's first words: what came out, against which baseline, and how sure that is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from fedfuse.records.statistics import best_round, deviation, spread
from fedfuse.reports import facts
from fedfuse.reports.elements import Block, Card, Section, Words
from fedfuse.reports.sections.cost import duration, size
from fedfuse.reports.variants import Line


def title(lines: Sequence[Line]) -> str:
    experiment = str(lines[0].runs[0].experiment.get("name", "experiment"))
    names = ", ".join(line.name for line in lines) if len(lines) <= 4 else f"{len(lines)} algorithms"
    return f"{experiment}: {names}"


def section(lines: Sequence[Line], targets: Sequence[float]) -> Section:
    leader = max(lines, key=lambda line: statistics.fmean(line.row.final))
    words: list[str] = [_state(lines)] if _state(lines) else []
    words.append(_result(leader, alone=len(lines) == 1))
    if len(lines) > 1:
        words += [_against(leader, lines)]
    words += [text for text in (_target(leader, lines, targets), _distilled(leader)) if text]
    blocks: list[Block] = [Words(" ".join(words))]
    return Section("verdict", "Verdict", blocks, _cards(leader, lines, targets))


def _state(lines: Sequence[Line]) -> str:
    """Said first, where not all is there."""
    runs = [run for line in lines for run in line.runs]
    open_ = [run for run in runs if not run.finished]
    if not open_:
        return ""
    if len(runs) == 1:
        return f"Not finished: {len(open_[0].history)} of {open_[0].rounds} rounds are on record."
    return f"Not finished: {len(open_)} of {len(runs)} runs have rounds left; what follows is what is on record."


def _result(leader: Line, *, alone: bool) -> str:
    row, seeds = leader.row, len(leader.runs)
    rounds = max(len(run.history) for run in leader.runs)
    over = f" over {seeds} seeds" if seeds > 1 else ""
    who = leader.name if alone else f"{leader.name} ends highest: it"
    when = f" in round {best_round(leader.runs[0]).round}" if seeds == 1 else ""
    counted = "round" if rounds == 1 else "rounds"
    final = f"{who} reaches {spread(row.final)} % test accuracy{over} after {rounds} {counted}"
    return f"{final}; its best is {spread(row.best)} %{when}."


def baseline(lines: Sequence[Line]) -> Line:
    """FedAvg where it is among them (it then comes first), else the first line."""
    return lines[0]


def _against(leader: Line, lines: Sequence[Line]) -> str:
    base = baseline(lines)
    if base is leader:
        second = max((line for line in lines if line is not leader), key=lambda l: statistics.fmean(l.row.final))  # noqa: E741
        return f"It is the baseline itself; the next, {second.name}, ends {_gap(leader, second)}."
    return f"The baseline {base.name} ends {_gap(leader, base)}."


def _gap(a: Line, b: Line) -> str:
    """How far `b` is below `a`: over the seeds that both have, pair by pair, as they share partition and cohorts."""
    ours, theirs = dict(zip(a.seeds, a.row.final, strict=True)), dict(zip(b.seeds, b.row.final, strict=True))
    both = sorted(ours.keys() & theirs.keys())
    if not both:
        return (
            f"{100 * (statistics.fmean(a.row.final) - statistics.fmean(b.row.final)):.2f} points below (no common seed)"
        )
    gaps = [100 * (ours[seed] - theirs[seed]) for seed in both]
    if len(gaps) == 1:
        return f"{gaps[0]:.2f} points below (one seed: chance is not ruled out)"
    return f"{statistics.fmean(gaps):.2f} ± {deviation(gaps):.2f} points below, over the same {len(gaps)} seeds"


def _target(leader: Line, lines: Sequence[Line], targets: Sequence[float]) -> str:
    if not targets:
        return ""
    target = targets[-1]
    if None in leader.row.reached(target):
        got = sum(r is not None for r in leader.row.reached(target))
        return f"The target of {100 * target:g} % is reached by {got} of its {len(leader.runs)} runs."
    said = f"It reaches {100 * target:g} % in {leader.row.rounds_to(target)} rounds"
    base = baseline(lines)
    return f"{said}." if base is leader else f"{said}, {base.name} in {base.row.rounds_to(target)}."


def _distilled(line: Line) -> str:
    """What distillation added to the average, and what it left of the ensemble."""
    before, after, above = (line.over_rounds(pick) for pick in (facts.average, facts.student, facts.ensemble))
    if not before or before.rounds != after.rounds:
        return ""
    gain = 100 * statistics.fmean(a - b for a, b in zip(after.mean, before.mean, strict=True))
    worse = sum(a < b for a, b in zip(after.mean, before.mean, strict=True))
    said = f"Distillation changes the average by {gain:+.2f} points in the mean over rounds"
    said += f", and lowers it in {worse} of {len(after.rounds)}" if worse else ""
    if above.rounds == after.rounds:
        left = 100 * statistics.fmean(e - a for e, a in zip(above.mean, after.mean, strict=True))
        side = "above" if left >= 0 else "below"
        said += f"; the ensemble is {abs(left):.2f} points {side} the student"
    return f"{said}."


def _cards(leader: Line, lines: Sequence[Line], targets: Sequence[float]) -> list[Card]:
    seeds = len(leader.runs)
    over = f"{leader.name}, {seeds} seeds" if seeds > 1 else leader.name
    cards = [
        Card("final accuracy", f"{spread(leader.row.final)} %", over),
        Card("best accuracy", f"{spread(leader.row.best)} %", over),
    ]
    if targets:
        cards.append(Card(f"rounds to {100 * targets[-1]:g} %", leader.row.rounds_to(targets[-1]), leader.name))
    sent = statistics.fmean(sum(r.bytes_up + r.bytes_down for r in run.history) for run in leader.runs)
    seconds = sum(line.row.seconds for line in lines)
    runs = sum(len(line.runs) for line in lines)
    cards.append(Card("sent up and down", size(sent), f"{leader.name}, one run"))
    cards.append(Card("time", duration(seconds), f"{runs} runs" if runs > 1 else "one run"))
    return cards
