"""Students: which models learn, where they start, and what the server's next models are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from fedfuse import tree
from fedfuse.context import Context
from fedfuse.fusion.aggregate import Models
from fedfuse.models.shared_head import head_of, with_head_of
from fedfuse.types import FedfuseError, ServerState, Update, model_of


class RunningStudents(Protocol):
    """The students of one round. It keeps no updates."""

    def add(self, update: Update) -> None:
        """Add one update, the same as to the aggregate."""

    def starts(self, averages: Models) -> Models:
        """Return the models that learn, by architecture, before distillation."""

    def value(self, averages: Models, distilled: Models) -> Models:
        """Return the server's next models, from the averages and the students after distillation."""


class Students(Protocol):
    def start(self, server: ServerState, ctx: Context) -> RunningStudents: ...


@dataclass(frozen=True)
class PerArchitecture:
    """One student per architecture of the server (FedDF's prototypes), including those without a client in this round.

    It starts from this round's average, or from the previous model (FedDF, Table 5); a prototype without a client
    always starts from its previous model.
    """

    initial: Literal["average", "previous"] = "average"

    def start(self, server: ServerState, ctx: Context) -> RunningStudents:
        return _RunningPrototypes(server.models, self.initial)


@dataclass(frozen=True)
class _RunningPrototypes:
    previous: Models
    initial: Literal["average", "previous"]

    def add(self, update: Update) -> None:
        pass

    def starts(self, averages: Models) -> Models:
        return {**self.previous, **averages} if self.initial == "average" else self.previous

    def value(self, averages: Models, distilled: Models) -> Models:
        return {**self.previous, **distilled}


@dataclass(frozen=True)
class LargeServer:
    """One student, the server's own large model; the clients' models are its teachers and are averaged (Fed-ET).

    Every model ends in the same head. Before distillation, the large model's head becomes the unweighted mean of the
    clients' heads; afterwards it is copied into the server's model of every client architecture. `arch` is by default
    the experiment's `models.server`.
    """

    arch: str | None = None

    def start(self, server: ServerState, ctx: Context) -> RunningStudents:
        arch = self.arch or ctx.server
        if arch is None or arch not in server.models:
            raise FedfuseError(
                f"LargeServer: the server has no model {arch or 'of its own'}: set models.server, and in the algorithm "
                "models=LargeModel()"
            )
        return _RunningLargeServer(arch, server.models)


class _RunningLargeServer:
    def __init__(self, arch: str, previous: Models) -> None:
        self._arch, self._previous = arch, previous
        self._heads = tree.RunningMean()
        self._template = head_of(previous[arch].params)

    def add(self, update: Update) -> None:
        model = model_of(update, "its head is averaged")
        head = head_of(model.params)
        if not head or {n: t.shape for n, t in head.items()} != {n: t.shape for n, t in self._template.items()}:
            raise FedfuseError(
                f"{model.arch} and {self._arch} do not end in the same head: give every model one, as in "
                "resnet8+head128, or models=LargeModel(head=128) in the algorithm"
            )
        self._heads.add(head, 1.0)

    def starts(self, averages: Models) -> Models:
        return {self._arch: with_head_of(self._previous[self._arch], self._heads.value())}

    def value(self, averages: Models, distilled: Models) -> Models:
        large = distilled[self._arch]
        head = head_of(large.params)
        small = {arch: with_head_of(model, head) for arch, model in {**self._previous, **averages}.items()}
        return {**small, self._arch: large}
