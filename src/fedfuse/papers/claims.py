"""Whether a paper's claim is seen in a result: it holds, it does not hold, or these seeds do not decide it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedfuse.papers.item import Claim, Item
from fedfuse.papers.result import Result
from fedfuse.records.statistics import Difference

Verdict = Literal["holds", "does not hold", "not decided by these seeds"]


@dataclass(frozen=True)
class Checked:
    """A claim in a group, the paired difference over the seeds in the unit of its measure, and the verdict."""

    claim: Claim
    group: str  # empty if the claim names its groups
    difference: Difference
    verdict: Verdict


def check(item: Item, result: Result) -> list[Checked]:
    """Check every claim of the item."""
    checked = []
    for claim, group, higher, lower in item.checks():
        measure = claim.measure or item.measure
        sums = [
            [sum(column) for column in zip(*(result.values(item, measure, *cell) for cell in cells), strict=True)]
            for cells in (higher, lower)
        ]
        difference = Difference.paired(*sums)
        checked.append(Checked(claim, group, difference, verdict(difference, claim.within)))
    return checked


def verdict(difference: Difference, within: float | None = None) -> Verdict:
    """Judge a paired difference: clear is what is more than two standard errors away.

    One seed decides nothing. Without `within` the difference must be above 0, with it between -within and within.
    """
    if difference.error is None:
        return "not decided by these seeds"
    low, high = difference.mean - 2 * difference.error, difference.mean + 2 * difference.error
    if within is None:
        return "holds" if low > 0 else "does not hold" if high < 0 else "not decided by these seeds"
    if -within <= low and high <= within:
        return "holds"
    return "does not hold" if high < -within or low > within else "not decided by these seeds"


def count(checked: Sequence[Checked]) -> str:
    """Return how many claims hold, do not hold, and are not decided, in words."""
    verdicts: tuple[Verdict, ...] = ("holds", "does not hold", "not decided by these seeds")
    numbers = [sum(c.verdict == v for c in checked) for v in verdicts]
    texts = (("holds", "hold"), ("does not hold", "do not hold"), ("not decided", "not decided"))
    return ", ".join(f"{n} {text[n > 1]}" for n, text in zip(numbers, texts, strict=True) if n) or "no claims"
