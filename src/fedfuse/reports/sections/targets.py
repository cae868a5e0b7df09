"""Rounds and parameters to a target accuracy (FedDF, Table 1; Fed-ET, Table 3), with censoring."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from fedfuse.reports.elements import Section, Table
from fedfuse.reports.variants import Variant


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
        columns += [
            f"rounds to {100 * target:g} %",
            f"parameters to {100 * target:g} %",
            f"seeds at {100 * target:g} %",
        ]
    rows = []
    for variant in variants:
        row: list[str] = [variant.name]
        for target in targets:
            count = sum(r is not None for r in variant.row.reached(target))
            row += [variant.row.rounds_to(target), variant.row.parameters_to(target), f"{count} of {len(variant.runs)}"]
        rows.append(row)
    caption = (
        "Means over seeds of the first evaluated round at the target. Parameters are all numbers sent up and down "
        "until then. If a seed never reached the target, the entry is a lower bound (>): what was spent without "
        "reaching it."
    )
    return Section(
        "targets",
        "Target accuracy",
        [Table("targets", "Cost to reach a target", columns, rows, ("algorithm",), caption)],
    )
