"""Who took part: how the data is spread over clients, and what became of each client's answers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from fedfuse.reports.elements import Block, Choice, Section, Table
from fedfuse.reports.facts import at
from fedfuse.reports.figure import Cell, Dots, Figure
from fedfuse.reports.read import RunOnDisk
from fedfuse.reports.variants import Line

COLUMNS = (
    "client",
    "architecture",
    "examples",
    "classes",
    "asked",
    "accepted",
    "refused",
    "distance",
    "agreement / %",
    "why refused, last",
)


def section(lines: Sequence[Line]) -> Section | None:
    known = [line for line in lines if line.runs[0].federation]
    if not known:
        return None
    blocks: list[Block] = [_partition(known[0].runs[0])]
    tables = {line.name: [table(line.runs[0], line)] for line in known}
    blocks += [*next(iter(tables.values()))] if len(tables) == 1 else [Choice("clients", tables)]
    return Section("clients", "Clients", blocks)


def _partition(run: RunOnDisk) -> Figure:
    scheme = {k: v for k, v in run.experiment["partition"].items() if k != "tries"}
    said = ", ".join(f"{k} = {v}" for k, v in scheme.items())
    most = max((max(row) for row in run.federation["counts"]), default=0)
    return Dots(
        "partition",
        "Who has what",
        f"Seed {run.seed}; {said}. The area of a dot is the number of training examples, at most {most:,}.",
        "client",
        "class",
        run.labels,
        run.federation["counts"],
    )


def table(run: RunOnDisk, line: Line) -> Table:
    """A row per client of one run."""
    counts, archs = run.federation["counts"], run.federation["architectures"]
    rows = [
        _row(client, sum(count), sum(n > 0 for n in count), archs[client], run) for client, count in enumerate(counts)
    ]
    seed = f"seed {run.seed}" if len(line.runs) > 1 else "this run"
    key = f"clients{line.suffix}"
    caption = (
        f"Of {seed}. Distance: how far the client's model moved from the server's in a round, Euclidean, in the mean. "
        "Agreement: how often it answers as the ensemble does."
    )
    told = [i for i in range(len(COLUMNS)) if any(row[i] is not None for row in rows)]  # a column with nothing goes
    columns, rows = [COLUMNS[i] for i in told], [[row[i] for i in told] for row in rows]
    return Table(key, f"Clients: {line.name}", columns, rows, ("architecture", "why refused, last"), caption)


def _row(client: int, examples: int, classes: int, arch: str, run: RunOnDisk) -> list[Cell]:
    name = str(client)
    refused = [done.rejected[name] for done in run.history if name in done.rejected]
    distances = [done.clients[name]["distance"] for done in run.history if "distance" in done.clients.get(name, {})]
    agreements = [a for done in run.history if (a := at(done.facts, "agreement", name)) is not None]
    return [
        client,
        arch,
        examples,
        classes,
        sum(client in done.cohort for done in run.history),
        sum(name in done.clients for done in run.history),
        len(refused),
        round(statistics.fmean(distances), 3) if distances else None,
        round(100 * statistics.fmean(agreements), 1) if agreements else None,
        refused[-1] if refused else None,
    ]
