"""What it cost: bytes, seconds by stage, peak memory."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import accumulate

from rich.filesize import decimal

from fedfuse.reports.elements import Section, Table
from fedfuse.reports.figure import Bar, Bars, Cell, Curves, Figure, Series
from fedfuse.reports.variants import Line

MB = 1e6
STAGES = {"local": "clients' work", "fuse": "fusion", "evaluate": "evaluation", "checkpoint": "checkpoint"}


def section(lines: Sequence[Line]) -> Section:
    return Section("cost", "Cost", [_accuracy_by_bytes(lines), _seconds(lines), _table(lines)])


def _accuracy_by_bytes(lines: Sequence[Line]) -> Figure:
    series = []
    for line in lines:
        band = line.over_rounds(lambda r: r.test_accuracy)
        sent = list(accumulate(line.over_rounds(lambda r: (r.bytes_up + r.bytes_down) / MB).mean))
        series.append(Series(line.name, sent, [100 * v for v in band.mean], line.colour))
    return Curves(
        "accuracy-by-bytes",
        "Accuracy by what was sent",
        "A mark per round, against all that was sent up and down until then. Means over seeds.",
        "sent / MB",
        "test accuracy / %",
        series,
        whole=False,
    )


def _seconds(lines: Sequence[Line]) -> Figure:
    present = [s for s in STAGES if any(s in done.seconds for line in lines for r in line.runs for done in r.history)]
    bars = [Bar(STAGES[s], [_per_round(line, s) for line in lines], i) for i, s in enumerate(present)]
    return Bars(
        "seconds",
        "Where the time went",
        "Seconds in a round, by stage: the median over rounds and seeds, so that a slow first round does not count.",
        "",
        "seconds in a round",
        [line.name for line in lines],
        bars,
        stacked=True,
        sideways=True,
    )


def _per_round(line: Line, stage: str) -> float:
    values = [done.seconds[stage] for run in line.runs for done in run.history if stage in done.seconds]
    return statistics.median(values) if values else 0.0


def _table(lines: Sequence[Line]) -> Table:
    rows: list[list[Cell]] = []
    for line in lines:
        each = [run.history for run in line.runs]
        rows.append(
            [
                line.name,
                size(statistics.fmean(sum(r.bytes_up for r in h) for h in each)),
                size(statistics.fmean(sum(r.bytes_down for r in h) for h in each)),
                duration(statistics.fmean(sum(sum(r.seconds.values()) for r in h) for h in each)),
                _peak(line, "server"),
                _peak(line, "workers"),
            ]
        )
    columns = ["algorithm", "sent up", "sent down", "time", "peak memory, server", "peak memory, workers"]
    caption = "Per run, in the mean over seeds; memory is the largest seen, that of workers is their sum."
    return Table("cost", "Per run", columns, rows, ("algorithm",), caption)


def _peak(line: Line, who: str) -> str | None:
    seen = [done.memory[who] for run in line.runs for done in run.history if who in done.memory]
    return size(max(seen)) if seen else None


def size(n: float) -> str:
    return decimal(round(n), precision=1)


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
