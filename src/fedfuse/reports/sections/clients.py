"""How the data is partitioned over clients, and how often each client's updates were accepted or refused."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from fedfuse.data.texts.lengths import TextFacts
from fedfuse.packing import FULL
from fedfuse.records.directory import FederationFacts
from fedfuse.records.stored import StoredRun
from fedfuse.reports import measures
from fedfuse.reports.elements import Block, Choice, Section, Table, without_empty_columns
from fedfuse.reports.figure import Cell, Dots, Figure
from fedfuse.reports.variants import Variant

COLUMNS = (
    "client",
    "architecture",
    "upload",
    "examples",
    "classes",
    "tokens, mean",
    "cut / %",
    "asked",
    "accepted",
    "refused",
    "distance",
    "agreement / %",
    "why refused, last",
)


def section(variants: Sequence[Variant]) -> Section | None:
    federations = [(variant, facts) for variant in variants if (facts := variant.runs[0].federation) is not None]
    if not federations:
        return None
    blocks: list[Block] = [_partition(federations[0][0].runs[0], federations[0][1])]
    tables = {variant.name: [table(variant.runs[0], facts, variant)] for variant, facts in federations}
    blocks += [*next(iter(tables.values()))] if len(tables) == 1 else [Choice("clients", tables)]
    if (texts := federations[0][1].texts) is not None:
        blocks.append(_text_lengths(texts))
    return Section("clients", "Clients", blocks)


def _text_lengths(texts: TextFacts) -> Table:
    columns = ("texts of", "mean", "median", "90 % up to", "99 % up to", "longest", "cut / %")
    sets = {"all clients": texts.train, "pool": texts.pool, "test": texts.test}
    rows: list[list[Cell]] = [
        [name, *(round(n, 1) for n in (of.mean, of.median, of.p90, of.p99)), of.longest, round(100 * of.truncated, 1)]
        for name, of in sets.items()
        if of is not None
    ]
    caption = (
        f"In tokens, before texts are cut to {texts.limit} or fewer (data.max_length); the tokenizer knows "
        f"{texts.vocabulary:,} tokens."
    )
    return Table("text-lengths", "Lengths of texts", columns, rows, ("texts of",), caption)


def _partition(run: StoredRun, facts: FederationFacts) -> Figure:
    scheme = {k: v for k, v in run.experiment.partition.model_dump().items() if k != "tries"}
    settings = ", ".join(f"{k} = {v}" for k, v in scheme.items())
    most = max((max(row) for row in facts.counts), default=0)
    return Dots(
        "partition",
        "Examples by client and class",
        f"Seed {run.seed}; {settings}. The area of a dot shows the number of training examples, at most {most:,}.",
        "client",
        "class",
        run.labels,
        facts.counts,
    )


def table(run: StoredRun, facts: FederationFacts, variant: Variant) -> Table:
    """Return a table with one row per client of one run."""
    rows = [
        _row(client, sum(count), sum(n > 0 for n in count), facts, run) for client, count in enumerate(facts.counts)
    ]
    for client in range(len(facts.counts), len(facts.architectures)):  # those that joined: only they know their classes
        claims = [record.clients[str(client)].examples for record in run.history if str(client) in record.clients]
        rows.append(_row(client, claims[-1] if claims else None, None, facts, run))
    key, seed = f"clients{variant.suffix}", f"Seed {run.seed}." if len(variant.runs) > 1 else ""
    words = ("architecture", "upload", "why refused, last")
    return without_empty_columns(
        Table(key, f"Clients: {variant.name}", COLUMNS, rows, words, seed),
        {
            "tokens, mean": "Tokens are counted before texts are cut.",
            "distance": "Distance: how far the client's model moved from the server's in a round (Euclidean, mean over "
            "rounds).",
            "agreement / %": "Agreement: how often it predicts the ensemble's class.",
        },
    )


def _row(client: int, examples: int | None, classes: int | None, facts: FederationFacts, run: StoredRun) -> list[Cell]:
    name = str(client)
    lengths = None if facts.texts is None or classes is None else facts.texts.clients[client]
    refused = [record.rejected[name] for record in run.history if name in record.rejected]
    accepted = [record.clients[name] for record in run.history if name in record.clients]
    distances = [each.distance for each in accepted if each.distance is not None]
    agreements = [share for record in run.history if (share := measures.agreement(record, client)) is not None]
    return [
        client,
        facts.architectures[client],
        facts.uploads[client] if any(upload != FULL for upload in facts.uploads) else None,
        examples,
        classes,
        None if lengths is None else round(lengths.mean, 1),
        None if lengths is None else round(100 * lengths.truncated, 1),
        sum(client in record.cohort for record in run.history),
        len(accepted),
        len(refused),
        round(statistics.fmean(distances), 3) if distances else None,
        round(100 * statistics.fmean(agreements), 1) if agreements else None,
        refused[-1] if refused else None,
    ]
