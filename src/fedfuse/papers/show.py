"""A result as tables and figures: ours beside the paper's numbers, the claims with their verdicts, the curves."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from fedfuse.files import slug
from fedfuse.papers.claims import Checked, check
from fedfuse.papers.item import ONLY, Gains, Item, Measure, Row
from fedfuse.papers.result import Result
from fedfuse.records.statistics import Difference, deviation
from fedfuse.reports.elements import Table
from fedfuse.reports.figure import Bar, Bars, Curves, Dash, Figure, Series

SIDE_BY_SIDE = 60  # characters of all names of groups that fit below a figure
MANY_ROUNDS, SMOOTH = 50, 10  # curves of more rounds are drawn as means of the last ten
RESULTS = ("test", "student")  # series of what a run results in; others are measured on the way
PATTERNS: tuple[Dash, ...] = ("dash", "dot")
UNITS: dict[Measure, str] = {
    "best": "best test accuracy, %",
    "final": "test accuracy in the last round, %",
    "mean": "test accuracy, mean over rounds, %",
    "rounds": "rounds to {target}",
    "parameters": "parameters sent until {target}",
    "number": "",
}


def unit(item: Item, measure: Measure | None = None) -> str:
    """Return what the numbers are."""
    if item.unit and measure in (None, item.measure):
        return item.unit
    target = " or ".join(f"{100 * target:g} %" for target in sorted(item.targets, reverse=True))
    return UNITS[measure or item.measure].format(target=target)


def number(value: float, measure: Measure) -> str:
    if measure == "parameters":
        return f"{value / 1e6:,.1f} M"
    return f"{value:.1f}" if measure == "rounds" else f"{value:.2f}"


def ours(item: Item, result: Result, group: str, row: str) -> str:
    """Return a cell: mean and deviation over the seeds. A target that a seed did not reach is said."""
    values = result.values(item, item.measure, group, row)
    text = number(statistics.fmean(values), item.measure)
    if item.measure in ("rounds", "parameters") and not result.all_reach(item, group, row):
        return f"> {text}" if item.measure == "parameters" else f"> {len(result.curves[group][row][0])}"
    return f"{text} ± {number(deviation(values), item.measure)}" if len(values) > 1 else text


def papers(item: Item, group: str, row: str) -> str:
    stated = item.paper_number(group, row)
    if stated is None:
        return ""
    text = number(stated.value, item.measure)
    return text if stated.deviation is None else f"{text} ± {number(stated.deviation, item.measure)}"


def numbers_table(item: Item, result: Result) -> Table:
    """Return a row for each cell of the paper's table: ours and the paper's number."""
    grouped = [g.name for g in item.groups] != [ONLY]
    rows = [
        [*([group.name] if grouped else []), row.name, ours(item, result, group.name, row.name)]
        + ([papers(item, group.name, row.name)] if item.numbers else [])
        for group in item.groups
        for row in item.rows_of(group.name)
    ]
    columns = [*([item.axis or "variation"] if grouped else []), "", "here", *(["paper"] if item.numbers else [])]
    seeds = f"mean ± deviation over {len(result.seeds)} seeds" if len(result.seeds) > 1 else "one seed"
    elsewhere = "; the paper's numbers are of its own data and scale" if item.numbers and result.scale != "full" else ""
    return Table("numbers", unit(item), columns, rows, words=columns[: 1 + grouped], caption=seeds + elsewhere)


def claims_table(item: Item, result: Result) -> Table:
    rows = [[one.claim.says, one.group, difference(one, item), one.verdict] for one in check(item, result)]
    columns = ["the paper's claim", item.axis or "variation", "difference", "here"]
    if not any(row[1] for row in rows) or [g.name for g in item.groups] == [ONLY]:
        columns, rows = [columns[0], *columns[2:]], [[row[0], *row[2:]] for row in rows]
    caption = "paired over seeds, ± standard error; clear is what is more than two standard errors away"
    return Table("claims", "Claims", columns, rows, words=[c for c in columns if c != "difference"], caption=caption)


def difference(checked: Checked, item: Item) -> str:
    measure = checked.claim.measure or item.measure
    factor, kind = (1e-6, " M") if measure == "parameters" else (1.0, "")
    mean, error = checked.difference.mean * factor, checked.difference.error
    text = f"{mean:+.2f}{kind}"
    return f"{text}, one seed" if error is None else f"{text} ± {error * factor:.2f}{kind}"


def figures(name: str, item: Item, result: Result) -> list[Figure]:
    """Return the figures of an item: a panel for each group over rounds, or one over groups."""
    if item.figure == "groups":
        return [_over_groups(name, item, result)]
    if item.gains is not None:
        figure = _gains(name, item, item.gains, result)
        return [figure] if figure.bars and figure.categories else []  # a run of single rows may have no difference
    return [_over_rounds(name, item, result, group.name) for group in item.groups] if item.figure == "rounds" else []


def _over_rounds(name: str, item: Item, result: Result, group: str) -> Curves:
    rows = item.rows_of(group)
    runs = list(dict.fromkeys(map(_run_of, rows)))  # rows of the same runs share a colour
    rounds = max(len(curve) for row in rows for curve in result.curves[group][row.name])
    smooth = SMOOTH if rounds > MANY_ROUNDS else 1
    series = []
    for row in rows:
        by_round = list(zip(*(_moving_mean(c, smooth) for c in result.curves[group][row.name]), strict=True))
        dash = _dash(row, rows)
        # Bands of one colour over each other say nothing: only the line of a run's own result has one.
        band = [100 * deviation(v) for v in by_round] if dash == "solid" else ()
        mean = [100 * statistics.fmean(v) for v in by_round]
        series.append(Series(row.name, range(1, len(mean) + 1), mean, runs.index(_run_of(row)), band, dash))
    alone = group == ONLY
    title = item.title if alone else group
    key = name if alone else f"{name}-{slug(group).lower()}"
    target = item.target_of(group)
    levels = {} if target is None else {f"{100 * target:g} %": 100 * target}
    y_title = "test accuracy, %" + (f", mean of {smooth} rounds" if smooth > 1 else "")
    return Curves(key, title, "Mean over seeds; a band is one deviation.", "round", y_title, series, levels)


def _run_of(row: Row) -> str:
    """Return what is the same for rows that are read from the same runs."""
    return row.algorithm or row.name


def _dash(row: Row, rows: Sequence[Row]) -> Dash:
    """Return a solid line for what a run results in, and for its other rows a pattern each."""
    if row.series in RESULTS:
        return "solid"
    others = [one.name for one in rows if _run_of(one) == _run_of(row) and one.series not in RESULTS]
    return PATTERNS[others.index(row.name) % len(PATTERNS)]


def _moving_mean(curve: Sequence[float], width: int) -> list[float]:
    """Return for each round the mean of the last `width` rounds, of fewer at the start."""
    return [statistics.fmean(curve[max(0, end - width) : end]) for end in range(1, len(curve) + 1)]


def _over_groups(name: str, item: Item, result: Result) -> Bars:
    """Return bars by group. A row that a group does not have has no bar there."""
    groups = [group.name for group in item.groups]
    bars = []
    for colour, row in enumerate(item.rows):
        each = [
            result.values(item, item.measure, group, row.name) if row.name in result.curves[group] else None
            for group in groups
        ]
        means = [None if values is None else statistics.fmean(values) for values in each]
        bars.append(Bar(row.name, means, colour, [0.0 if values is None else deviation(values) for values in each]))
    caption, axis = "Mean and deviation over seeds.", item.axis or "variation"
    return Bars(name, item.title, caption, axis, unit(item), groups, bars, sideways=_sideways(groups))


def _sideways(groups: Sequence[str]) -> bool:
    """Return whether the names of the groups are too long to stand side by side."""
    return sum(map(len, groups)) > SIDE_BY_SIDE


def _gains(name: str, item: Item, gains: Gains, result: Result) -> Bars:
    """Return how far rows are above another one, paired over seeds, in every group that has them."""
    measured = {row.name for row in item.rows}
    bars, of = [], [row for row in gains.of if {row, gains.over} <= measured]
    groups = [group.name for group in item.groups if {gains.over, *of} <= set(result.curves[group.name])]
    what = f"points above {gains.over}" if len(of) > 1 else f"{' '.join(of)} above {gains.over}, points"
    for colour, row in enumerate(of, 1):
        each = [
            Difference.paired(*(result.values(item, item.measure, group, one) for one in (row, gains.over)))
            for group in groups
        ]
        bars.append(Bar(row, [d.mean for d in each], colour, [d.error or 0.0 for d in each]))
    caption = f"Paired over seeds, with the standard error: {unit(item)}."
    return Bars(name, item.title, caption, item.axis or "variation", what, groups, bars, sideways=_sideways(groups))
