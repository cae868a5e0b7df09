"""Draw accuracies by round with matplotlib, for a notebook."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fedfuse.notebook import COLOURS
from fedfuse.records.statistics import Row, WithHistory, deviation
from fedfuse.types import FedfuseError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_accuracies(runs: Mapping[str, Sequence[WithHistory]], axes: Axes | None = None) -> Axes:
    """Draw a line per name: the mean over its runs, with a band of one standard deviation where there are several."""
    if axes is None:
        axes = _new_axes()
    for number, (name, each) in enumerate(runs.items()):
        by_round, colour = Row(name, each).by_round(), COLOURS[number % len(COLOURS)]
        rounds, means = list(by_round), [statistics.fmean(values) for values in by_round.values()]
        axes.plot(rounds, [100 * mean for mean in means], label=name, color=colour)
        if len(each) > 1:
            spreads = [deviation(values) for values in by_round.values()]
            low, high = ([100 * (m + sign * s) for m, s in zip(means, spreads, strict=True)] for sign in (-1, 1))
            axes.fill_between(rounds, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel("round")
    axes.set_ylabel("test accuracy, %")
    axes.locator_params(axis="x", integer=True)
    if len(runs) > 1:
        axes.legend(frameon=False)
    else:
        axes.set_title(next(iter(runs), ""))
    return axes


def _new_axes() -> Axes:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise FedfuseError('plot needs matplotlib: pip install "fedfuse[notebook]"') from error
    return pyplot.subplots(figsize=(6, 3.6), layout="constrained")[1]
