"""The summary of a sweep on the terminal: its best trials, and the command that runs the best one again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedfuse.config.values import format_value
from fedfuse.sweeps.results import TRIALS, Sweep, Trial
from fedfuse.sweeps.space import in_order
from fedfuse.terminal.tables import plain_table

MOST = 10  # rows of the table, and failures listed below it


def of_sweep(sweep: Sweep) -> RenderableType:
    parts: list[RenderableType] = [_trials(sweep), _not_in_table(sweep)]
    if sweep.importances:
        shares = ", ".join(f"{key} {100 * share:.0f} %" for key, share in sweep.importances.items())
        parts.append(Text(f"  what explains validation accuracy: {shares}\n", style="dim"))
    places = Text(f"  {sweep.path}", style="green").append("  a run directory for each trial\n", style="dim")
    return Group(*parts, places.append(f"  {sweep.path / TRIALS}", style="green").append("  all trials\n", style="dim"))


def again(trial: Trial, command: Sequence[str]) -> Text:
    """Return the command line that runs a trial again. `command` runs the experiment without the trial's parameters."""
    pairs = in_order(trial.parameters).items()
    settings = [word for key, value in pairs for word in ("--set", f"{key}={format_value(value)}")]
    return Text(f"  run trial {trial.number} again:\n", style="dim").append(
        f"  {shlex.join([*command, *settings])}", style="bold not dim"
    )


def _trials(sweep: Sweep) -> Table:
    seeds = f", mean of {sweep.seeds} seeds" if sweep.seeds > 1 else ""
    title = f"{sweep.experiment}: {len(sweep.trials)} trials of {sweep.rounds} rounds{seeds}"
    columns = ("rank", "trial", *sweep.space, "validation\naccuracy %", "rounds")
    table = plain_table(title, *columns, numbers_from=0, wrap=True)
    table.add_column(
        "test accuracy %\n(not used to choose)", justify="right", header_style="dim", style="dim", no_wrap=True
    )
    for rank, trial in _rows(sweep):
        row = [rank, str(trial.number), *(_short(trial.parameters.get(key)) for key in sweep.space)]
        rounds = f"{trial.rounds}, pruned" if trial.state == "pruned" else str(trial.rounds)
        style = "bold green" if rank == "1" else None
        table.add_row(*row, _percent(trial.validation), rounds, _percent(trial.test), style=style)
    return table


def _rows(sweep: Sweep) -> list[tuple[str, Trial]]:
    """Return complete trials by rank, then pruned ones without a rank: their accuracy is that of an earlier round."""
    pruned = sorted((t for t in sweep.trials if t.state == "pruned"), key=lambda t: (-(t.validation or 0), t.number))
    ranked = [(str(rank), trial) for rank, trial in enumerate(sweep.ranked, 1)]
    return [*ranked, *(("", trial) for trial in pruned)][:MOST]


def _not_in_table(sweep: Sweep) -> Text:
    text = Text()
    failed = [trial for trial in sweep.trials if trial.state == "failed"]
    if hidden := len(sweep.trials) - len(failed) - len(_rows(sweep)):
        text.append(f"  and {hidden} more\n", style="dim")
    for trial in failed[:MOST]:
        text.append(f"  trial {trial.number} failed: ", style="yellow").append(f"{trial.reason}\n")
    return text


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else format_value(value)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f}"
