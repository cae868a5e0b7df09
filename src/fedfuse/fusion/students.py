"""Students: which models learn, and from where they start. Vetting: which client models are let in to teach."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from fedfuse import codec
from fedfuse.fusion.aggregate import Models
from fedfuse.fusion.ensemble import received
from fedfuse.types import Failure, FedfuseError, ServerState, Snapshot, Update

Judged = tuple[Update, str | None]  # an update, and why it is dropped if it is


class Students(Protocol):
    def __call__(self, server: ServerState, averages: Models) -> Models:
        """The model from which each architecture's student starts."""


@dataclass(frozen=True)
class PerArchitecture:
    """One student per architecture of the server (FedDF's prototypes), also of one that no client had this round.

    It starts from this round's average, or from the previous model (FedDF, Table 5); a prototype without a client
    has only its previous model to start from.
    """

    start: Literal["average", "previous"] = "average"

    def __call__(self, server: ServerState, averages: Models) -> Models:
        return {**server.models, **averages} if self.start == "average" else server.models


class Admission(Protocol):
    def __call__(
        self, updates: Iterable[Update], accuracy: Callable[[Snapshot], float], classes: int
    ) -> Iterator[Judged]: ...


@dataclass(frozen=True)
class DropWorst:
    """FedDF's drop-worst: a client whose validation accuracy is below `factor` times chance is left out of everything.

    With `deviations` (1.5 in the released code): if none is that bad, those below mean - deviations * std are left
    out. As in the code, the best client is not counted in mean and std. This needs all accuracies first, so updates
    wait in a temporary folder, not in memory.
    """

    factor: float = 1.2
    deviations: float | None = None

    def __post_init__(self) -> None:
        if self.factor < 0 or (self.deviations is not None and self.deviations < 0):
            raise FedfuseError(f"DropWorst({self.factor}, {self.deviations}): neither may be negative; 0 drops none")

    def __call__(
        self, updates: Iterable[Update], accuracy: Callable[[Snapshot], float], classes: int
    ) -> Iterator[Judged]:
        bar = self.factor / classes
        if self.deviations is None:
            for update in updates:
                reached = accuracy(received(update))
                yield update, _below(reached, bar, "chance")
            return
        with tempfile.TemporaryDirectory(prefix="fedfuse-") as folder:
            reached_by: list[float] = []
            for update in updates:
                reached_by.append(accuracy(received(update)))
                (Path(folder) / str(len(reached_by))).write_bytes(codec.encode_update(update))
            what = "chance"
            if all(reached >= bar for reached in reached_by):
                bar, what = self._outlier_bar(reached_by), f"the mean less {self.deviations:g} deviations"
            for number, reached in enumerate(reached_by, 1):
                stored = codec.decode_update((Path(folder) / str(number)).read_bytes())
                assert not isinstance(stored, Failure)
                yield stored, _below(reached, bar, what)

    def _outlier_bar(self, accuracies: list[float]) -> float:
        others = sorted(accuracies)[:-1]
        if not others or self.deviations is None:
            return -math.inf
        return float(np.mean(others) - self.deviations * np.std(others))


def _below(reached: float, bar: float, what: str) -> str | None:
    return None if reached >= bar else f"validation accuracy {reached:.4f} is below {bar:.4f} ({what})"
