"""Admission: which of the vetted client models take part in the fusion, judged on the server's validation data."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from fedfuse import bounds, codec
from fedfuse.context import Context
from fedfuse.evaluate import evaluate
from fedfuse.types import FedfuseError, Update, model_of


class Admission(Protocol):
    def __call__(self, updates: Iterable[Update], ctx: Context) -> Iterator[tuple[Update, str | None]]:
        """Yield the same updates in the same order, each with the reason why it is left out, or None."""


@dataclass(frozen=True)
class AdmitAll:
    """Every client takes part."""

    def __call__(self, updates: Iterable[Update], ctx: Context) -> Iterator[tuple[Update, str | None]]:
        return ((update, None) for update in updates)


@dataclass(frozen=True)
class DropWorst:
    """FedDF's drop-worst: a client whose validation accuracy is below `factor` times chance is left out of everything.

    With `deviations` (1.5 in the released code): if no client is that bad, those below mean - deviations * std are left
    out. As in the code, mean and std exclude the best client. This needs all accuracies first, so updates are stored in
    a temporary folder, not in memory.
    """

    factor: float = 1.2
    deviations: float | None = None

    def __post_init__(self) -> None:
        bounds.not_negative(self, "0 drops none", factor=self.factor, deviations=self.deviations)

    def check(self, ctx: Context) -> None:
        if not len(ctx.data.validation):
            raise FedfuseError("drop-worst needs validation accuracies: set data.validation")

    def __call__(self, updates: Iterable[Update], ctx: Context) -> Iterator[tuple[Update, str | None]]:
        self.check(ctx)
        threshold = self.factor / ctx.data.validation.classes
        if self.deviations is None:
            for update in updates:
                yield update, _problem(_validation_accuracy(update, ctx), threshold, "chance")
            return
        with tempfile.TemporaryDirectory(prefix="fedfuse-") as folder:
            accuracies: list[float] = []
            for update in updates:
                accuracies.append(_validation_accuracy(update, ctx))
                (Path(folder) / str(len(accuracies))).write_bytes(codec.encode_update(update))
            what = "chance"
            if all(accuracy >= threshold for accuracy in accuracies):
                threshold, what = self._outlier_threshold(accuracies), f"the mean minus {self.deviations:g} deviations"
            for number, accuracy in enumerate(accuracies, 1):
                update = codec.decode_update((Path(folder) / str(number)).read_bytes())
                yield update, _problem(accuracy, threshold, what)

    def _outlier_threshold(self, accuracies: list[float]) -> float:
        others = sorted(accuracies)[:-1]
        if not others or self.deviations is None:
            return -math.inf
        return float(np.mean(others) - self.deviations * np.std(others))


def admission_with(admission: Admission, drop_worst: bool) -> Admission:
    """Return the admission of an algorithm with these two settings, of which the second is short for drop-worst."""
    if not drop_worst:
        return admission
    if admission != AdmitAll():
        raise FedfuseError(
            f"drop_worst = True is short for the admission drop-worst, and admission = {admission!r} is set too: leave "
            "drop_worst out"
        )
    return DropWorst()


def _validation_accuracy(update: Update, ctx: Context) -> float:
    net = ctx.nets.load(model_of(update, "drop-worst evaluates client models"), "teacher")
    return evaluate(net, ctx.data.validation).accuracy


def _problem(accuracy: float, threshold: float, what: str) -> str | None:
    return None if accuracy >= threshold else f"validation accuracy {accuracy:.4f} is below {threshold:.4f} ({what})"
