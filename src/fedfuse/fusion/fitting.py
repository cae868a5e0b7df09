"""Fit a distiller's schedule to a small pool: only settings that nobody stated are changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, runtime_checkable

from fedfuse.data.federation import Federation
from fedfuse.fusion.distillers import SGD, SWA, AdamCosine, Distiller

Free = Callable[[str], bool]  # whether a setting was left to its default


@runtime_checkable
class LearnsFromPool(Protocol):
    """A part of an algorithm that distils."""

    def learning(self, data: Federation) -> tuple[Distiller, int] | None:
        """Return the distiller and the number of pool examples that it learns from; None without a pool."""


def fitted(distiller: Distiller, rows: int, images: bool, free: Free) -> Distiller:
    """Return the distiller with those settings changed that are free and do not fit `rows` examples of a pool.

    A batch larger than the pool becomes the whole pool. An augmentation of other inputs than images is left out.
    """
    if not isinstance(distiller, AdamCosine | SGD | SWA) or rows < 1:
        return distiller
    if rows < distiller.batch_size and free("batch_size"):
        distiller = replace(distiller, batch_size=rows)
    if distiller.augment != "none" and not images and free("augment"):
        distiller = replace(distiller, augment="none")
    return _collecting(distiller, rows, free) if isinstance(distiller, SWA) else distiller


def _collecting(swa: SWA, rows: int, free: Free) -> SWA:
    """Return SWA with a start and a cycle that let it collect models, if it takes too few steps for its own.

    Both shrink by one factor, so that the first model is collected about halfway.
    """
    steps = swa.epochs * (rows // swa.batch_size)
    if steps == 0 or swa.first_collected <= steps:
        return swa
    factor = steps / (2 * swa.first_collected)
    if free("cycle"):
        swa = replace(swa, cycle=max(1, int(swa.cycle * factor)))
    if free("swa_start"):
        swa = replace(swa, swa_start=max(0, min(int(swa.swa_start * factor), steps - swa.cycle)))
    return swa
