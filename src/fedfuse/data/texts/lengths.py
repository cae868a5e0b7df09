"""Lengths of texts in tokens, before they are cut: for people who choose `data.max_length`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedfuse.data.examples import Examples
from fedfuse.data.federation import Federation

LENGTH = "text length"  # the column of examples with the number of tokens before truncation


@dataclass(frozen=True)
class TextLengths:
    """The lengths of some texts in tokens. `truncated` is the share of texts that are cut."""

    mean: float
    median: float
    p90: float
    p99: float
    longest: int
    truncated: float

    @staticmethod
    def of(lengths: Tensor, limit: int) -> TextLengths:
        """The summary of lengths (n,), of which those above `limit` are cut."""
        if not len(lengths):
            return TextLengths(0.0, 0.0, 0.0, 0.0, 0, 0.0)
        values = lengths.numpy()
        median, p90, p99 = np.quantile(values, (0.5, 0.9, 0.99)).tolist()
        cut = float((values > limit).mean())
        return TextLengths(float(values.mean()), median, p90, p99, int(values.max()), cut)


@dataclass(frozen=True)
class TextFacts:
    """The lengths of a federation's texts: of all clients' texts, of the test texts, of the pool, and by client."""

    limit: int  # tokens of the longest text after truncation
    vocabulary: int
    train: TextLengths
    test: TextLengths
    pool: TextLengths | None
    clients: tuple[TextLengths, ...]


def text_facts(federation: Federation) -> TextFacts | None:
    """The lengths of the federation's texts; None for other data."""
    train, limit = federation.train, federation.train.shape[0] if federation.train.shape else 0
    if not train.vocabulary or LENGTH not in train.columns:
        return None

    def of(examples: Examples) -> TextLengths:
        return TextLengths.of(examples.columns[LENGTH], limit)

    lengths = train.columns[LENGTH]
    clients = tuple(TextLengths.of(lengths[part], limit) for part in federation.parts)
    pool = None if federation.pool is None else of(federation.pool)
    return TextFacts(limit, train.vocabulary, of(train), of(federation.test), pool, clients)
