"""The cost of a run: bytes, seconds by stage, peak memory."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import accumulate

from fedfuse.records.amounts import duration, size
from fedfuse.records.record import RoundRecord
from fedfuse.reports.elements import Amount, Section, Table, without_empty_columns
from fedfuse.reports.figure import Bar, Bars, Cell, Curves, Figure, Series
from fedfuse.reports.variants import Variant, by_result

MB = 1e6
STAGES = {"local": "clients' work", "fuse": "fusion", "evaluate": "evaluation", "checkpoint": "checkpoint"}


def section(variants: Sequence[Variant]) -> Section:
    return Section("cost", "Cost", [_by_bytes(variants), _by_upload(variants), _seconds(variants), _table(variants)])


def _by_bytes(variants: Sequence[Variant]) -> Figure:
    return Curves(
        "accuracy-by-bytes",
        "Accuracy by bytes sent",
        f"One mark per evaluated round, against all bytes sent up and down until then.{_means(variants)}",
        "sent / MB",
        "test accuracy / %",
        [_accuracy_by(variant, lambda r: r.bytes_up + r.bytes_down) for variant in variants],
        whole=False,
    )


def _by_upload(variants: Sequence[Variant]) -> Figure:
    return Curves(
        "accuracy-by-upload",
        "Accuracy by bytes uploaded",
        "One mark per evaluated round, against what clients have sent until then, in the formats in which they send."
        f"{_means(variants)}",
        "uploaded / MB",
        "test accuracy / %",
        [_accuracy_by(variant, lambda r: r.bytes_up) for variant in variants],
        whole=False,
    )


def _accuracy_by(variant: Variant, sent: Callable[[RoundRecord], int]) -> Series:
    band, bytes_sent = variant.over_rounds(lambda r: r.test_accuracy), variant.over_rounds(lambda r: sent(r) / MB)
    until = dict(zip(bytes_sent.rounds, accumulate(bytes_sent.mean), strict=True))
    return Series(variant.name, [until[r] for r in band.rounds], [100 * v for v in band.mean], variant.colour)


def _seconds(variants: Sequence[Variant]) -> Figure:
    stages = [
        s
        for s in STAGES
        if any(s in record.seconds for variant in variants for r in variant.runs for record in r.history)
    ]
    ordered = by_result(variants)
    bars = [Bar(STAGES[s], [_per_round(variant, s) for variant in ordered], i) for i, s in enumerate(stages)]
    return Bars(
        "seconds",
        "Time by stage",
        f"Seconds per round, by stage. The median over rounds{' and seeds' if _several(variants) else ''}, so that a "
        "slow first round does not count.",
        "",
        "seconds in a round",
        [variant.name for variant in ordered],
        bars,
        stacked=True,
        sideways=True,
    )


def _per_round(variant: Variant, stage: str) -> float:
    values = [record.seconds[stage] for run in variant.runs for record in run.history if stage in record.seconds]
    return statistics.median(values) if values else 0.0


def bytes_of(variant: Variant, sent: Callable[[RoundRecord], int]) -> float:
    """Return the bytes that one run sends, mean over seeds."""
    return statistics.fmean(sum(sent(record) for record in run.history) for run in variant.runs)


def all_bytes_of(variant: Variant) -> float:
    """Return the bytes that one run sends up and down, mean over seeds."""
    return bytes_of(variant, lambda r: r.bytes_up + r.bytes_down)


def seconds_of(variant: Variant) -> float:
    """Return the seconds that one run takes, mean over seeds."""
    return variant.row.seconds / len(variant.runs)


def _table(variants: Sequence[Variant]) -> Table:
    rows: list[list[Cell | Amount]] = [
        [
            variant.name,
            _size(bytes_of(variant, lambda r: r.bytes_up)),
            _size(bytes_of(variant, lambda r: r.bytes_down)),
            Amount(duration(seconds_of(variant)), {" / s": seconds_of(variant)}),
            _peak(variant, "server"),
            _peak(variant, "workers"),
        ]
        for variant in by_result(variants)
    ]
    columns = ["algorithm", "sent up", "sent down", "time", "peak memory, server", "peak memory, workers"]
    several = _several(variants)
    return without_empty_columns(
        Table("cost", "Per run", columns, rows, ("algorithm",), "Means over seeds." if several else ""),
        {
            "peak memory, server": f"Memory is the maximum over rounds{' and seeds' if several else ''}.",
            "peak memory, workers": "That of workers is their sum.",
        },
    )


def _means(variants: Sequence[Variant]) -> str:
    return " Means over seeds." if _several(variants) else ""


def _several(variants: Sequence[Variant]) -> bool:
    return any(len(variant.runs) > 1 for variant in variants)


def _peak(variant: Variant, who: str) -> Amount | None:
    peaks = [record.memory[who] for run in variant.runs for record in run.history if who in record.memory]
    return _size(max(peaks)) if peaks else None


def _size(n: float) -> Amount:
    return Amount(size(n), {" / bytes": n})
