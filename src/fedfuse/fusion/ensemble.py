"""Ensembles: which models teach. Client models teach as they arrive, averages and samples after all have arrived."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from fedfuse import bounds
from fedfuse.context import Context
from fedfuse.fusion.aggregate import Models, Weights
from fedfuse.fusion.posterior import Posterior, RunningPosterior
from fedfuse.types import ServerState, Snapshot, Update, model_of

NEEDS = "the ensemble is made of client models"


@dataclass(frozen=True)
class Teacher:
    name: str  # for errors and records
    model: Snapshot
    weight: float = 1.0
    sample: bool = False  # drawn from a posterior


class RunningEnsemble(Protocol):
    """The ensemble of one round. It keeps no updates."""

    def teachers(self, update: Update) -> Sequence[Teacher]:
        """Return the models that teach as soon as this update arrives: none, one or several."""

    def add(self, update: Update) -> None:
        """Add an update whose teachers were added: later teachers may depend on it."""

    def value(self, averages: Models) -> Iterator[Teacher]:
        """Yield the models that teach after the stream. `averages` are the models of the aggregate."""


class Ensemble(Protocol):
    def start(self, server: ServerState, ctx: Context) -> RunningEnsemble: ...


@dataclass(frozen=True)
class Clients:
    """The received client models."""

    weights: Weights = "uniform"

    def start(self, server: ServerState, ctx: Context) -> RunningEnsemble:
        return self

    def teachers(self, update: Update) -> Sequence[Teacher]:
        weight = 1.0 if self.weights == "uniform" else float(update.num_examples)
        return [Teacher(f"client {update.client}", model_of(update, NEEDS), weight)]

    def add(self, update: Update) -> None:
        pass

    def value(self, averages: Models) -> Iterator[Teacher]:
        return iter(())


@dataclass(frozen=True)
class Anchors:
    """The models of the aggregate: one average per architecture that took part."""

    def start(self, server: ServerState, ctx: Context) -> RunningEnsemble:
        return self

    def teachers(self, update: Update) -> Sequence[Teacher]:
        return ()

    def add(self, update: Update) -> None:
        pass

    def value(self, averages: Models) -> Iterator[Teacher]:
        return (Teacher(f"the average {arch}", model) for arch, model in averages.items())


@dataclass(frozen=True)
class Samples:
    """`count` samples of a posterior over the client models, for each architecture that took part."""

    posterior: Posterior
    count: int = 10

    def __post_init__(self) -> None:
        bounds.not_negative(self, "0 draws no sample", count=self.count)

    def start(self, server: ServerState, ctx: Context) -> RunningEnsemble:
        return _RunningSamples(self.posterior, self.count, server, ctx)


class _RunningSamples:
    def __init__(self, posterior: Posterior, count: int, server: ServerState, ctx: Context) -> None:
        self._posterior, self._count, self._server, self._ctx = posterior, count, server, ctx
        self._running: dict[str, RunningPosterior] = {}  # by architecture

    def teachers(self, update: Update) -> Sequence[Teacher]:
        return ()

    def add(self, update: Update) -> None:
        if self._count == 0:
            return
        model = model_of(update, NEEDS)
        if model.arch not in self._running:
            self._running[model.arch] = self._posterior.start(self._count, self._server.models[model.arch])
        rng = self._ctx.rng("posterior", self._ctx.round, update.client)
        self._running[model.arch].add(model, float(update.num_examples), rng)

    def value(self, averages: Models) -> Iterator[Teacher]:
        for arch, running in sorted(self._running.items()):
            sampler = running.value()
            for number in range(self._count):
                rng = self._ctx.rng("sample", self._ctx.round, arch, number)
                yield Teacher(f"sample {number + 1} of {arch}", sampler.sample(rng, number), sample=True)


@dataclass(frozen=True)
class Union:
    """The teachers of all its parts."""

    parts: tuple[Ensemble, ...]

    def __init__(self, *parts: Ensemble) -> None:
        object.__setattr__(self, "parts", parts)

    def start(self, server: ServerState, ctx: Context) -> RunningEnsemble:
        return _RunningUnion([part.start(server, ctx) for part in self.parts])


@dataclass(frozen=True)
class _RunningUnion:
    parts: Sequence[RunningEnsemble]

    def teachers(self, update: Update) -> Sequence[Teacher]:
        return [teacher for part in self.parts for teacher in part.teachers(update)]

    def add(self, update: Update) -> None:
        for part in self.parts:
            part.add(update)

    def value(self, averages: Models) -> Iterator[Teacher]:
        for part in self.parts:
            yield from part.value(averages)
