"""A source of data: training examples, test examples and the names of the classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfuse.compute.batches import Batch
from fedfuse.data.examples import Examples
from fedfuse.data.statistics import channel_statistics
from fedfuse.data.texts.store import ROWS, Texts

Rows = tuple[Batch | Texts, Tensor, Mapping[str, Tensor]]  # x (N, ...) or N texts, y (N,), columns of (N,)


@dataclass(frozen=True)
class Source:
    """A data set ready for use. The test data has the statistics of the training data."""

    train: Examples
    test: Examples
    labels: tuple[str, ...]

    @staticmethod
    def of(train: Rows, test: Rows, labels: tuple[str, ...], one_hot: Tensor | None = None) -> Source:
        """A source with the statistics of its training data. Features that are `one_hot` (D,) are not standardised."""
        x = train[0]
        # The tensors of a mapping, such as token ids, are taken as they are.
        mean, std = channel_statistics(x) if isinstance(x, Tensor) else (torch.zeros(1), torch.ones(1))
        if one_hot is not None:
            mean, std = mean.masked_fill(one_hot, 0.0), std.masked_fill(one_hot, 1.0)
        first, second = (_examples(rows, len(labels), mean, std) for rows in (train, test))
        return Source(first, second, labels)


def _examples(rows: Rows, classes: int, mean: Tensor, std: Tensor) -> Examples:
    x, y, columns = rows
    if isinstance(x, Texts):
        return Examples({ROWS: torch.arange(len(x))}, y, classes, mean, std, columns, texts=x)
    return Examples(x, y, classes, mean, std, columns)
