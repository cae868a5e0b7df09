"""`python -m tests.faults`: the whole campaign, with a table at the end. Exit code 1 if anything went wrong."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time

import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.faults import campaign
from tests.faults.tally import Tally


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of all faults (default 0)")
    parser.add_argument("--amount", type=int, default=6, help="how many times what the suite tries (default 6)")
    parser.add_argument("--kind", choices=campaign.KINDS, action="append", help="only this kind; repeatable")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tallies, started = [], time.monotonic()
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with tempfile.TemporaryDirectory() as cache, Progress(*columns, console=Console(stderr=True)) as bars:
        os.environ["FEDFUSE_CACHE"] = cache
        for kind in options.kind or campaign.KINDS:
            bar = bars.add_task(kind, total=None)
            tallies.append(campaign.KINDS[kind](options.seed, options.amount, lambda bar=bar: bars.advance(bar)))
            bars.update(bar, total=tallies[-1].tried, completed=tallies[-1].tried)
    console = Console(width=100)
    console.print(table(tallies))
    console.print(f"seed {options.seed}, amount {options.amount}, {time.monotonic() - started:.0f} s", highlight=False)
    for case in [case for tally in tallies for case in tally.cases][:20]:
        console.print(case, markup=False, highlight=False, style="red")
    sys.exit(any(tally.bad for tally in tallies))


def table(tallies: list[Tally]) -> Table:
    made = Table()
    made.add_column("fault", no_wrap=True)
    for column in ("tried", "told", "harmless", "wrong", "lost", "tracebacks"):
        made.add_column(column, justify="right")
    for t in tallies:
        numbers = (t.tried, t.message, t.harmless, t.wrong, t.lost, t.tracebacks)
        made.add_row(t.kind, *(f"{number:,}" for number in numbers), style="red" if t.bad else None)
    return made


if __name__ == "__main__":
    main()
