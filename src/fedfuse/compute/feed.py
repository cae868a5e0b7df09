"""Batches of a pool on the device of the net that takes them.

On the CPU they are read as they are. On an accelerator the stored rows, such as images as bytes, are copied to the
device once if they fit, and else batch by batch: from pinned memory, one batch ahead. Both are normalised on the
device by the same operations, so the bits do not depend on what fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from fedfuse.compute import devices
from fedfuse.compute.batches import Batch, columns_up_to, copy_rows, lengths_of, nbytes, pin, to_device, trim_padding

Fed = tuple[Batch, Tensor]  # inputs (B, ...) and what belongs to them (B, ...)


class Pool(Protocol):
    """Unlabeled inputs, read by row number: `fedfuse.data.Examples` is one."""

    def __len__(self) -> int: ...

    def batch(self, index: Tensor) -> Batch:
        """Row numbers (B,) -> inputs (B, ...) as a net takes them."""


@runtime_checkable
class Stored(Protocol):
    """A pool that is whole tensors, which may be copied to a device."""

    @property
    def x(self) -> Batch: ...

    @property
    def copies(self) -> dict[torch.device, Batch]:
        """The copies of `x` on devices."""

    def preparation(self, device: torch.device) -> Callable[[Batch], Batch]:
        """Return the function from stored rows (B, ...) on the device to inputs as a net takes them."""


@runtime_checkable
class Watched(Protocol):
    """A pool that wraps another, and is notified of batches that are read from that one directly."""

    @property
    def pool(self) -> Pool: ...

    def advance(self, rows: int) -> None: ...


class Feed:
    """The pool's `rows` (n,), on a device, with `labels` (n, ...): by default their positions 0 to n - 1."""

    def __init__(self, pool: Pool, rows: Tensor, device: torch.device, labels: Tensor | None = None) -> None:
        self._pool, self._rows, self._device, self._labels = pool, rows, device, labels
        self._resident = None if device.type == "cpu" else _resident(_inner(pool), rows, device, labels)

    def __call__(self, positions: Iterable[Tensor]) -> Iterator[Fed]:
        """Yield inputs and labels of each batch of positions (B,) among the rows."""
        if self._device.type == "cpu":
            for index in positions:
                yield to_device(self._pool.batch(self._rows[index]), self._device), self._labels_at(index)
            return
        batches = self._sent(positions) if self._resident is None else map(self._resident.batch, positions)
        for inputs, labels in batches:
            if isinstance(self._pool, Watched):
                self._pool.advance(len(labels))
            yield inputs, labels

    def _labels_at(self, index: Tensor) -> Tensor:
        return index if self._labels is None else self._labels[index]

    def _sent(self, positions: Iterable[Tensor]) -> Iterator[Fed]:
        """Send batch by batch. The next one is on its way before the current one is used."""
        pool = _inner(self._pool)
        prepare = pool.preparation(self._device) if isinstance(pool, Stored) else None
        waiting: Fed | None = None
        for index in positions:
            rows = to_device(pin(_stored_rows(pool, self._rows[index]), self._device), self._device)
            labels = to_device(pin(self._labels_at(index), self._device), self._device)
            if waiting is not None:
                yield waiting
            waiting = (rows if prepare is None else prepare(rows)), labels
        if waiting is not None:
            yield waiting


class _Resident:
    """Rows and labels on the device. Of each batch, only its positions (B,) are sent there."""

    def __init__(
        self,
        x: Batch,
        rows: Tensor | None,  # (n,) of x, on the device; None if x holds only these rows
        labels: Tensor | None,
        lengths: Tensor | None,  # (n,) of sequences, on the CPU: reading them from the device would wait for it
        prepare: Callable[[Batch], Batch],
        device: torch.device,
    ) -> None:
        self._x, self._rows, self._labels, self._lengths = x, rows, labels, lengths
        self._prepare, self._device = prepare, device

    def batch(self, index: Tensor) -> Fed:
        here = index.to(self._device, non_blocking=True)
        inputs = copy_rows(self._x, here if self._rows is None else self._rows[here])
        if self._lengths is not None and not isinstance(inputs, Tensor):
            inputs = columns_up_to(inputs, int(self._lengths[index].max()))
        return self._prepare(inputs), here if self._labels is None else self._labels[here]


def _resident(pool: Pool, rows: Tensor, device: torch.device, labels: Tensor | None) -> _Resident | None:
    """Copy the pool to the device, or if it does not fit only the rows; None if these do not fit either."""
    if not isinstance(pool, Stored):
        return None
    room = devices.room(device) - (0 if labels is None else labels.nbytes)
    lengths = lengths_of(pool.x, rows)
    try:
        here = None if labels is None else labels.to(device)
        if device in pool.copies or nbytes(pool.x) <= room:
            if device not in pool.copies:
                pool.copies[device] = to_device(pool.x, device)
            return _Resident(pool.copies[device], rows.to(device), here, lengths, pool.preparation(device), device)
        if len(rows) < len(pool) and nbytes(pool.x) // len(pool) * len(rows) <= room:
            own = to_device(copy_rows(pool.x, rows), device)
            return _Resident(own, None, here, lengths, pool.preparation(device), device)
    except torch.OutOfMemoryError:  # other processes may have taken what was free
        pool.copies.pop(device, None)
    return None


def _stored_rows(pool: Pool, index: Tensor) -> Batch:
    """Return rows as they are stored, without needless padding; of a pool that is no tensors, as a net takes them."""
    if not isinstance(pool, Stored):
        return pool.batch(index)
    rows = copy_rows(pool.x, index)
    return rows if isinstance(rows, Tensor) else trim_padding(rows)


def _inner(pool: Pool) -> Pool:
    return pool.pool if isinstance(pool, Watched) else pool
