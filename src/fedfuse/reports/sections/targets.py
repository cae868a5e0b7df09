"""Rounds and parameters to a target accuracy (FedDF, Table 1; Fed-ET, Table 3), with censoring."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from fedfuse.reports.elements import Section, Table
from fedfuse.reports.variants import Line


def default_targets(lines: Sequence[Line]) -> list[float]:
    """Multiples of 5 %: what every line reaches in the mean over seeds, and what the best one does."""
    best = [statistics.fmean(line.row.best) for line in lines]
    steps = {math.floor(20 * value + 1e-9) / 20 for value in (min(best), max(best))}
    return sorted(step for step in steps if step > 0)


def section(lines: Sequence[Line], targets: Sequence[float]) -> Section | None:
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
    for line in lines:
        row: list[str] = [line.name]
        for target in targets:
            got = sum(r is not None for r in line.row.reached(target))
            row += [line.row.rounds_to(target), line.row.parameters_to(target), f"{got} of {len(line.runs)}"]
        rows.append(row)
    caption = (
        "Means over seeds. Parameters are all numbers sent up and down until then. Where a seed never got there, "
        "the entry is a bound (>): what was spent without reaching it."
    )
    return Section(
        "targets", "To a target", [Table("targets", "What a target costs", columns, rows, ("algorithm",), caption)]
    )
