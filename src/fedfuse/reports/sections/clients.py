"""How the data is partitioned over clients, and how often each client's updates were accepted or refused."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from fedfuse.data.texts.lengths import TextFacts
from fedfuse.facts import Discrepancy
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
    "discrepancy to pool",
    "discrepancy to others",
    "own error / %",
    "why refused, last",
)


def section(variants: Sequence[Variant]) -> Section | None:
    federations = [(variant, facts) for variant in variants if (facts := variant.runs[0].federation) is not None]
    if not federations:
        return None
    blocks: list[Block] = [_partition(federations[0][0].runs[0], federations[0][1])]
    tables = {variant.name: [table(variant.runs[0], facts, variant)] for variant, facts in federations}
    blocks += [*next(iter(tables.values()))] if len(tables) == 1 else [Choice("clients", tables)]
    blocks += _bound(variants)
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
            "discrepancy to pool": "Discrepancy of its data to the pool and to the other clients' data: 0 if a "
            "classifier cannot tell them apart, 2 if it always can.",
            "own error / %": "Own error: of its model on its own training data, mean over rounds.",
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
        *_discrepancy([record.facts.discrepancy[name] for record in run.history if name in record.facts.discrepancy]),
        refused[-1] if refused else None,
    ]


def _discrepancy(rounds: Sequence[Discrepancy]) -> list[Cell]:
    """Return the means over rounds: of the distances to pool and others, and of the own error in percent."""
    pool, others, own = (
        [value for value in values if value is not None]
        for values in ([r.pool for r in rounds], [r.others for r in rounds], [r.own_error for r in rounds])
    )
    return [
        round(statistics.fmean(pool), 2) if pool else None,
        round(statistics.fmean(others), 2) if others else None,
        round(100 * statistics.fmean(own), 1) if own else None,
    ]


def _bound(variants: Sequence[Variant]) -> list[Table]:
    """Return the measured terms of the bound on the ensemble's error, if there are any."""
    rows: list[list[Cell]] = []
    for variant in variants:
        own, others = variant.over_rounds(measures.own_error), variant.over_rounds(measures.half_discrepancy)
        error = variant.over_rounds(lambda r: None if (a := measures.ensemble(r)) is None else 1 - a)
        if others:
            terms = [round(100 * statistics.fmean(band.mean), 1) if band else None for band in (own, others, error)]
            rows.append([variant.name, *terms])
    columns = ["algorithm", "own error / %", "half the discrepancy to others / %", "error of the ensemble / %"]
    caption = (
        "Fed-ET's Theorem 1 bounds the ensemble's error by the sum of the first two, of a term that shrinks with the "
        "examples of a client, and of the error of the best single model for a client's data and all data, which "
        "cannot be measured; FedDF's Theorem 5.1 has the error of one model trained on all data instead of the first. "
        "Means over the clients of a round, rounds and seeds. The ensemble's error is that on the probe."
    )
    return [Table("bound", "Bound on the ensemble's error", columns, rows, ("algorithm",), caption)] if rows else []
