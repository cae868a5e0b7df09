"""Students: which models learn, from where they start, and what is handed back. Vetting: which client models teach."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from fedfuse import codec, tree
from fedfuse.context import Context
from fedfuse.fusion.aggregate import Models
from fedfuse.fusion.ensemble import received
from fedfuse.models.shared_head import head_of
from fedfuse.types import Failure, FedfuseError, ServerState, Snapshot, Tensors, Update

Judged = tuple[Update, str | None]  # an update, and why it is dropped if it is


class Enrolled(Protocol):
    """The students of one round, over a stream of updates of which none is kept."""

    def note(self, update: Update) -> None:
        """An update that was accepted."""

    def starts(self, averages: Models) -> Models:
        """Who learns, by architecture, and from where."""

    def handed_back(self, averages: Models, learnt: Models) -> Models:
        """The server's next models."""


class Students(Protocol):
    def enrol(self, server: ServerState, ctx: Context) -> Enrolled: ...


@dataclass(frozen=True)
class PerArchitecture:
    """One student per architecture of the server (FedDF's prototypes), also of one that no client had this round.

    It starts from this round's average, or from the previous model (FedDF, Table 5); a prototype without a client
    has only its previous model to start from.
    """

    start: Literal["average", "previous"] = "average"

    def enrol(self, server: ServerState, ctx: Context) -> Enrolled:
        return _Prototypes(server.models, self.start)


@dataclass(frozen=True)
class _Prototypes:
    previous: Models
    start: Literal["average", "previous"]

    def note(self, update: Update) -> None:
        pass

    def starts(self, averages: Models) -> Models:
        return {**self.previous, **averages} if self.start == "average" else self.previous

    def handed_back(self, averages: Models, learnt: Models) -> Models:
        return {**self.previous, **learnt}


@dataclass(frozen=True)
class LargeServer:
    """One student, the server's own large model; the clients' models are its teachers and are averaged (Fed-ET).

    Every model ends in the same head. The large model's becomes the mean of the heads that clients sent, each alike,
    before it learns; after that it is copied into the server's model of every client architecture. `arch` is by
    default the experiment's `models.server`.
    """

    arch: str | None = None

    def enrol(self, server: ServerState, ctx: Context) -> Enrolled:
        arch = self.arch or ctx.server
        if arch is None or arch not in server.models:
            raise FedfuseError(
                f"LargeServer: the server has no model {arch or 'of its own'}: set models.server, and in the algorithm "
                "large_server=True"
            )
        return _Large(arch, server.models)


class _Large:
    def __init__(self, arch: str, previous: Models) -> None:
        self._arch, self._previous = arch, previous
        self._heads = tree.RunningMean()
        self._template = head_of(previous[arch].params)

    def note(self, update: Update) -> None:
        model = received(update)
        head = head_of(model.params)
        if not head or {n: t.shape for n, t in head.items()} != {n: t.shape for n, t in self._template.items()}:
            raise FedfuseError(
                f"{model.arch} and {self._arch} do not end in the same head: give every model one, as in "
                "resnet8+head128, or head=128 in the algorithm"
            )
        self._heads.add(head, 1.0)

    def starts(self, averages: Models) -> Models:
        return {self._arch: _with_head(self._previous[self._arch], self._heads.value())}

    def handed_back(self, averages: Models, learnt: Models) -> Models:
        large = learnt[self._arch]
        small = {**self._previous, **averages}
        return {**{arch: _with_head(model, head_of(large.params)) for arch, model in small.items()}, self._arch: large}


def _with_head(model: Snapshot, head: Tensors) -> Snapshot:
    own = {name: tensor.clone() for name, tensor in head.items()}
    return replace(model, params={**model.params, **own})


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
