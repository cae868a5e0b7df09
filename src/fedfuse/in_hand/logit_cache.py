"""The teachers' logits on all data: computed once, and kept in the cache by content."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedfuse.compute.batches import Batch, forward, length
from fedfuse.data import arrays
from fedfuse.fusion.spill import SpillingRows
from fedfuse.fusion.table import TensorPool, logits_of
from fedfuse.in_hand.progress import Bars, with_bar
from fedfuse.in_hand.raw import hash_of
from fedfuse.in_hand.readings import NamedModel, NumberPool, all_rows, inputs_hash
from fedfuse.types import DamagedError

CHUNK = 256  # rows converted at once
ROW, IMAGES = "row", "images"  # keys of a numbered pool
FOLDER = "teachers"  # in the cache


class LogitCache:
    """Logits of models on data, by the content of both. A damaged or missing entry is computed again."""

    def __init__(self, cache: Path, bars: Bars) -> None:
        self._folder, self._bars = cache / FOLDER, bars
        self.computed: set[str] = set()  # titles of models that were run

    def logits(self, model: NamedModel, pool: NumberPool | TensorPool, data: str, probe: Tensor) -> Tensor:
        """Return the model's logits (N, C) on a pool that it reads; `data` is the name of the source.

        probe: its logits on a few inputs. They are part of the key, because code can change without the weights.
        """
        key = _key(model.net, pool, probe)
        folder = self._folder / key
        try:
            tensors, facts = arrays.read(folder)
            logits = tensors["logits"]
            if facts.get("key") == key and len(logits) == len(pool):  # else it is a copy of another entry
                return logits
        except (DamagedError, KeyError):
            arrays.remove(folder)
        logits = logits_of(
            model.net, with_bar(pool, self._bars, model.title, rows=len(pool)), all_rows(pool), model.title
        )
        self.computed.add(model.title)
        try:
            facts = {"teacher": model.title, "data": data, "key": key}
            arrays.write(folder, {"logits": logits}, facts, replace=False)
        except OSError as error:
            warnings.warn(
                f"{model.title} is not cached: {folder} cannot be written ({error}): set FEDFUSE_CACHE", stacklevel=2
            )
        return logits


def _key(net: nn.Module, pool: NumberPool | TensorPool, probe: Tensor) -> str:
    tensors = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    parts = (type(net).__qualname__, hash_of(tensors), hash_of({"probe": probe}), inputs_hash(pool))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class StoredLogits(nn.Module):
    """A stand-in for a teacher: it looks its logits up by row number."""

    logits: Tensor

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.register_buffer("logits", logits, persistent=False)  # (rows, C)

    def forward(self, row: Tensor, **inputs: Tensor) -> Tensor:
        return self.logits[row.cpu()]


class WithoutRow(nn.Module):
    """A student on numbered inputs: it does not see the row numbers."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, row: Tensor, **inputs: Tensor) -> Any:
        return forward(self.net, inputs.get(IMAGES, inputs))


def with_row_numbers(pool: NumberPool | TensorPool, first: int) -> dict[str, Tensor]:
    """Return inputs with row numbers from `first` on. Past a bound, images are kept in a mapped file."""
    if isinstance(pool, TensorPool) and not isinstance(pool.x, Tensor):
        inputs = dict(pool.x)
    else:
        rows = SpillingRows(torch.float32)
        for index in torch.split(all_rows(pool), CHUNK):
            rows.append(_tensor(pool.batch(index)))
        inputs = {IMAGES: rows.whole()}
    return {**inputs, ROW: torch.arange(first, first + length(inputs))}


def _tensor(batch: Batch) -> Tensor:
    assert isinstance(batch, Tensor)
    return batch
