"""The cost of a run: bytes, seconds by stage, peak memory."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import accumulate

from rich.filesize import decimal

from fedfuse.records.record import RoundRecord
from fedfuse.reports.elements import Section, Table
from fedfuse.reports.figure import Bar, Bars, Cell, Curves, Figure, Series
from fedfuse.reports.variants import Variant

MB = 1e6
STAGES = {"local": "clients' work", "fuse": "fusion", "evaluate": "evaluation", "checkpoint": "checkpoint"}


def section(variants: Sequence[Variant]) -> Section:
    return Section("cost", "Cost", [_by_bytes(variants), _by_upload(variants), _seconds(variants), _table(variants)])


def _by_bytes(variants: Sequence[Variant]) -> Figure:
    return Curves(
        "accuracy-by-bytes",
        "Accuracy by bytes sent",
        "One mark per evaluated round, against all bytes sent up and down until then. Means over seeds.",
        "sent / MB",
        "test accuracy / %",
        [_accuracy_by(variant, lambda r: r.bytes_up + r.bytes_down) for variant in variants],
        whole=False,
    )


def _by_upload(variants: Sequence[Variant]) -> Figure:
    return Curves(
        "accuracy-by-upload",
        "Accuracy by bytes uploaded",
        "One mark per evaluated round, against what clients have sent until then, in the formats in which they send. "
        "Means over seeds.",
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
    bars = [Bar(STAGES[s], [_per_round(variant, s) for variant in variants], i) for i, s in enumerate(stages)]
    return Bars(
        "seconds",
        "Time by stage",
        "Seconds per round, by stage: the median over seeds and the rounds that have the stage, so that a slow first "
        "round does not count.",
        "",
        "seconds in a round",
        [variant.name for variant in variants],
        bars,
        stacked=True,
        sideways=True,
    )


def _per_round(variant: Variant, stage: str) -> float:
    values = [record.seconds[stage] for run in variant.runs for record in run.history if stage in record.seconds]
    return statistics.median(values) if values else 0.0


def _table(variants: Sequence[Variant]) -> Table:
    rows: list[list[Cell]] = []
    for variant in variants:
        each = [run.history for run in variant.runs]
        rows.append(
            [
                variant.name,
                size(statistics.fmean(sum(r.bytes_up for r in h) for h in each)),
                size(statistics.fmean(sum(r.bytes_down for r in h) for h in each)),
                duration(statistics.fmean(sum(sum(r.seconds.values()) for r in h) for h in each)),
                _peak(variant, "server"),
                _peak(variant, "workers"),
            ]
        )
    columns = ["algorithm", "sent up", "sent down", "time", "peak memory, server", "peak memory, workers"]
    caption = "Per run, mean over seeds. Memory is the maximum over rounds and seeds; for workers, their sum."
    return Table("cost", "Per run", columns, rows, ("algorithm",), caption)


def _peak(variant: Variant, who: str) -> str | None:
    peaks = [record.memory[who] for run in variant.runs for record in run.history if who in record.memory]
    return size(max(peaks)) if peaks else None


def size(n: float) -> str:
    return decimal(round(n), precision=1)


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
