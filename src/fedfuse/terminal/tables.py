"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedfuse import models, signature
from fedfuse.algorithms import ALGORITHMS
from fedfuse.config.experiment import Experiment, builtin
from fedfuse.config.parts import PARTS
from fedfuse.data.federation import Federation
from fedfuse.data.partition import SCHEMES
from fedfuse.data.picture import summary
from fedfuse.data.pool import POOLS
from fedfuse.data.sources import PATTERNS, SOURCES
from fedfuse.data.texts.lengths import TextLengths, text_facts
from fedfuse.records.directory import CHECKPOINTS, EXPERIMENT, MODELS, ROUNDS
from fedfuse.records.statistics import Difference, Row, spread
from fedfuse.runs.result import Run


def plain_table(title: str, *columns: str, numbers_from: int = 1, wrap: bool = False) -> Table:
    """Return a table whose columns from `numbers_from` on are right-aligned. With `wrap`, its text may wrap."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        header_style="bold cyan",
        collapse_padding=True,
        pad_edge=False,
    )
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i >= numbers_from else "left", no_wrap=not wrap, vertical="bottom")
    return table


def of_run(run: Run) -> RenderableType:
    """Return the summary of a run: its accuracies and its files."""
    table = plain_table("", "model", "final accuracy", "final loss", "best accuracy", "at round")
    for arch, score in run.final.models.items():
        accuracies = {record.round: record.models[arch].accuracy for record in run.history if record.evaluated}
        best = max(accuracies, key=lambda round: accuracies[round])
        cells = [f"{100 * score.accuracy:.2f} %", f"{score.loss:.4f}", f"{100 * accuracies[best]:.2f} %", str(best)]
        table.add_row(arch, *cells)
    return Group(table, _files(run.path))


def _files(path: Path) -> Text:
    text = Text()
    for name, what in (
        (ROUNDS, "one record per round"),
        (MODELS, "the trained models"),
        (EXPERIMENT, "the experiment with all its settings"),
        (CHECKPOINTS, "for --resume"),
    ):
        text.append(f"  {path / name}", style="green").append(f"  {what}\n", style="dim")
    return text


def of_comparison(experiment: Experiment, rows: Sequence[Row], target: float | None, folder: Path) -> RenderableType:
    rounds, seeds = experiment.run.rounds, len(rows[0].runs)
    columns = ["algorithm", "best\naccuracy %", "final\naccuracy %", "mean over\nrounds %"]
    if len(rows) > 1:
        columns.append(f"mean over rounds,\npoints above {rows[0].name}")
    if target is not None:
        columns += [f"rounds to\n{100 * target:g} %", f"parameters\nto {100 * target:g} %"]
    title = f"{experiment.name}: {rounds} rounds, {_evaluated(experiment)}{seeds} seed{'s' * (seeds > 1)}"
    table = plain_table(title, *columns, "seconds")
    names = [row.name for row in rows]
    settings = Text()
    ordered = sorted(rows, key=lambda row: -sum(row.final))  # as in the report
    for row in ordered:
        label = row.name if names.count(row.name) == 1 else row.algorithm
        if label != row.algorithm:  # settings would widen the column, so list them below
            settings.append(f"  {row.algorithm}\n", style="dim")
        reach = [] if target is None else [row.rounds_to(target), row.parameters_to(target)]
        gain = Difference.paired(row.mean_over_rounds, rows[0].mean_over_rounds)
        gains = [] if len(rows) == 1 else ["" if row is rows[0] else gain.points()]
        cells = [label, spread(row.best), spread(row.final), spread(row.mean_over_rounds), *gains, *reach]
        table.add_row(*cells, f"{row.seconds:.1f}", style="bold green" if row is ordered[0] else None)
    return Group(table, settings, Text(f"  {folder}", style="green").append("  one directory per run\n", style="dim"))


def _evaluated(experiment: Experiment) -> str:
    """Say which rounds have accuracies, unless all have."""
    every = experiment.run.evaluate_every
    return "" if every == 1 else f"evaluated every {every} and after the last, "


def _definitions(title: str, entries: Mapping[str, str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, show_header=False, padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, text in entries.items():
        table.add_row(name, Text(text))
    return table


def catalogue() -> list[Table]:
    """Return tables of everything that an experiment can name."""
    return [_definitions(title, known) for title, known in catalogue_entries().items()]


def catalogue_entries() -> dict[str, dict[str, str]]:
    """Return everything that an experiment can name, by kind, each with its description."""
    parts = {f"{protocol.__name__.lower()}s": known for protocol, known in PARTS.items()}
    functions: dict[str, Mapping[str, signature.Function]] = {
        "algorithms": ALGORITHMS,
        **parts,
        "partitions": SCHEMES,
        "data sources": SOURCES,
        "pools": POOLS,
    }
    entries = {title: {n: signature.summary(f) for n, f in known.items()} for title, known in functions.items()}
    entries["data sources"] |= PATTERNS
    entries["algorithms"]["package.module:function"] = "your own function that returns an Algorithm"
    first_lines = {name: f.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for name, f in builtin().items()}
    zoo = {name: entry.description for name, entry in models.ZOO.items()}
    zoo |= {name: entry.description for name, entry in models.TEXT_NETS.items()}
    order = ["algorithms", *parts, "experiments", "models", "partitions", "data sources", "pools"]
    zoo["NAME:1bit"] = "one-bit weights, with straight-through gradients (Rastegari et al. 2016); any of these nets"
    zoo["NAME:int8, NAME:bfloat16"] = "in models.clients: how a client uploads its model, as local.upload for all"
    entries |= {"experiments": first_lines, "models": zoo}
    return {title: entries[title] for title in order}


def of_look(source: str, facts: Mapping[str, str]) -> RenderableType:
    """Show what was seen in a data source."""
    return _definitions(source, facts)


def of_check(experiment: Experiment, federation: Federation, notes: Sequence[str] = ()) -> RenderableType:
    """Show what was checked. `notes` are lines about settings that were fitted to the data."""
    sizes = [len(part) for part in federation.parts]
    texts = text_facts(federation)
    return _definitions(
        f"{experiment.name} is sound",
        {
            "data": f"{experiment.data.source}: {len(federation.train):,} training, {len(federation.validation):,} "
            f"validation, {len(federation.test):,} test examples, {federation.train.classes} classes, "
            f"shape {federation.train.shape}",
            "pool": "none" if federation.pool is None else f"{len(federation.pool):,} unlabeled examples",
            "partition": f"{partition_title(experiment)}: {min(sizes):,} to {max(sizes):,} examples each"
            f"{_left_out(federation)}",
            **({} if texts is None else {"texts": f"{_lengths(texts.train)}; {texts.vocabulary:,} tokens are known"}),
            "models": ", ".join(experiment.models.weights),
            "algorithm": experiment.algorithm.name,
            **({"fitted": "\n".join(notes)} if notes else {}),
            "fingerprint": federation.fingerprint[:16],
        },
    )


def partition_title(experiment: Experiment) -> str:
    settings = ", ".join(f"{k}={v}" for k, v in experiment.partition.settings.items() if k != "tries")
    scheme = f"{experiment.partition.scheme}({settings})" if settings else experiment.partition.scheme
    kept = "" if experiment.partition.keep == 1 else f", {experiment.partition.keep:.4g} of each client's data"
    return f"{experiment.data.source}, {experiment.partition.clients} clients, {scheme}{kept}"


def of_partition(experiment: Experiment, federation: Federation) -> RenderableType:
    labels, texts = federation.labels, text_facts(federation)
    columns = labels if len(labels) <= 12 else ()  # more do not fit on a screen
    of_texts = () if texts is None else ("tokens", "cut %")
    table = plain_table(partition_title(experiment), "client", "n", "classes", "entropy", *of_texts, *columns)
    for row in summary(federation):
        counts = [str(n) if n else "·" for n in row.counts] if columns else []
        own = [] if texts is None else [texts.clients[row.client]]
        lengths = [cell for one in own for cell in (f"{one.mean:.1f}", f"{100 * one.truncated:.1f}")]
        table.add_row(str(row.client), f"{row.examples:,}", str(row.present), f"{row.entropy:.2f}", *lengths, *counts)
    notes = [left] if (left := _left_out(federation).removeprefix("; ")) else []
    if texts is not None:
        sets = {"clients": texts.train, "pool": texts.pool, "test": texts.test}
        notes += [f"texts of {name}: {_lengths(each)}" for name, each in sets.items() if each is not None]
    return Group(table, Text("\n".join(f"  {note}" for note in notes) + "\n")) if notes else table


def _lengths(texts: TextLengths) -> str:
    return (
        f"{texts.mean:.1f} tokens on average, median {texts.median:.0f}, 90 % up to {texts.p90:.0f}, "
        f"99 % up to {texts.p99:.0f}, "
        f"longest {texts.longest:,}; {100 * texts.truncated:.1f} % are cut"
    )


def _left_out(federation: Federation) -> str:
    """Say how many training examples no client has, if any."""
    left = len(federation.train) - sum(federation.sizes)
    return f"; {left:,} of {len(federation.train):,} examples are left out" if left else ""
