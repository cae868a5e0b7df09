"""Rounds and parameters to a target accuracy (FedDF, Table 1; Fed-ET, Table 3), with censoring."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from fedfuse.reports.elements import Amount, Section, Table
from fedfuse.reports.figure import Cell
from fedfuse.reports.variants import Variant, by_result


def default_targets(variants: Sequence[Variant]) -> list[float]:
    """Return the highest multiples of 5 % that every variant and that the best one reach, in the mean over seeds."""
    best = [statistics.fmean(variant.row.best) for variant in variants]
    steps = {math.floor(20 * value + 1e-9) / 20 for value in (min(best), max(best))}
    return sorted(step for step in steps if step > 0)


def section(variants: Sequence[Variant], targets: Sequence[float]) -> Section | None:
    if not targets:
        return None
    columns = ["algorithm"]
    for target in targets:
        columns += [f"{what} {100 * target:g} %" for what in ("rounds to", "parameters to", "seeds at")]
    rows: list[list[Cell | Amount]] = []
    for variant in by_result(variants):
        rows.append([variant.name, *(amount for target in targets for amount in _amounts(variant, target))])
    sentences = [
        "Means over seeds of the first evaluated round at the target."
        if any(len(variant.runs) > 1 for variant in variants)
        else "",
        "Parameters are all numbers sent up and down until then.",
        "If a seed never reached the target, the entry is a lower bound (>): what was spent without reaching it."
        if any(variant.row.spent(target).bound for variant in variants for target in targets)
        else "",
    ]
    caption = " ".join(filter(None, sentences))
    return Section(
        "targets",
        "Target accuracy",
        [Table("targets", "Cost to reach a target", columns, rows, ("algorithm",), caption)],
    )


def _amounts(variant: Variant, target: float) -> list[Amount]:
    row, spent, seeds = variant.row, variant.row.spent(target), len(variant.runs)
    count = sum(r is not None for r in row.reached(target))
    bound = {", lower bound": 1} if spent.bound else {}
    return [
        Amount(row.rounds_to(target), {"": spent.rounds, **bound}),
        Amount(row.parameters_to(target), {"": spent.parameters, **bound}),
        Amount(f"{count} of {seeds}", {"": count, ", of": seeds}),
    ]
