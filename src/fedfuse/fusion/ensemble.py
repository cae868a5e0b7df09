"""Ensembles: which models teach. Client models teach as they arrive; averages and samples once all have arrived."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from fedfuse.context import Context
from fedfuse.fusion.aggregate import Models
from fedfuse.fusion.posterior import Fitting, Posterior
from fedfuse.types import FedfuseError, ServerState, Snapshot, Update


@dataclass(frozen=True)
class Teacher:
    name: str  # as an error or a record calls it
    model: Snapshot
    weight: float = 1.0


class Faculty(Protocol):
    """The teachers of one round, over a stream of updates of which none is kept."""

    def now(self, update: Update) -> Iterable[Teacher]:
        """Who can teach as soon as this update is here."""

    def note(self, update: Update) -> None:
        """An update that was accepted: what later teachers are made from."""

    def later(self, averages: Models) -> Iterator[Teacher]:
        """Who can teach once the stream has ended, one at a time."""


class Ensemble(Protocol):
    def start(self, server: ServerState, ctx: Context) -> Faculty: ...


@dataclass(frozen=True)
class Clients:
    """The received client models."""

    weights: Literal["uniform", "examples"] = "uniform"

    def start(self, server: ServerState, ctx: Context) -> Faculty:
        return self

    def now(self, update: Update) -> Iterable[Teacher]:
        weight = 1.0 if self.weights == "uniform" else float(update.num_examples)
        return (Teacher(f"client {update.client}", received(update), weight),)

    def note(self, update: Update) -> None:
        pass

    def later(self, averages: Models) -> Iterator[Teacher]:
        return iter(())


@dataclass(frozen=True)
class Anchors:
    """What the aggregate made: one average per architecture that took part."""

    def start(self, server: ServerState, ctx: Context) -> Faculty:
        return self

    def now(self, update: Update) -> Iterable[Teacher]:
        return ()

    def note(self, update: Update) -> None:
        pass

    def later(self, averages: Models) -> Iterator[Teacher]:
        return (Teacher(f"the average {arch}", model) for arch, model in averages.items())


@dataclass(frozen=True)
class Samples:
    """`count` models from a posterior over the client models, for each architecture that took part."""

    posterior: Posterior
    count: int = 10

    def __post_init__(self) -> None:
        if self.count < 0:
            raise FedfuseError(f"Samples(count={self.count}): give a number of samples, or 0 for none")

    def start(self, server: ServerState, ctx: Context) -> Faculty:
        return _Sampled(self.posterior, self.count, server, ctx)


class _Sampled:
    def __init__(self, posterior: Posterior, count: int, server: ServerState, ctx: Context) -> None:
        self._posterior, self._count, self._server, self._ctx = posterior, count, server, ctx
        self._fittings: dict[str, Fitting] = {}

    def now(self, update: Update) -> Iterable[Teacher]:
        return ()

    def note(self, update: Update) -> None:
        if self._count == 0:
            return
        model = received(update)
        if model.arch not in self._fittings:
            self._fittings[model.arch] = self._posterior.start(self._count, self._server.models[model.arch])
        rng = self._ctx.rng("posterior", self._ctx.round, update.client)
        self._fittings[model.arch].add(model, float(update.num_examples), rng)

    def later(self, averages: Models) -> Iterator[Teacher]:
        for arch, fitting in sorted(self._fittings.items()):
            for number in range(self._count):
                rng = self._ctx.rng("sample", self._ctx.round, arch, number)
                yield Teacher(f"sample {number + 1} of {arch}", fitting.draw(number, rng))


@dataclass(frozen=True)
class Union:
    """All the teachers of all its parts."""

    parts: tuple[Ensemble, ...]

    def __init__(self, *parts: Ensemble) -> None:
        object.__setattr__(self, "parts", parts)

    def start(self, server: ServerState, ctx: Context) -> Faculty:
        return _Together([part.start(server, ctx) for part in self.parts])


@dataclass(frozen=True)
class _Together:
    faculties: list[Faculty]

    def now(self, update: Update) -> Iterable[Teacher]:
        return [teacher for faculty in self.faculties for teacher in faculty.now(update)]

    def note(self, update: Update) -> None:
        for faculty in self.faculties:
            faculty.note(update)

    def later(self, averages: Models) -> Iterator[Teacher]:
        for faculty in self.faculties:
            yield from faculty.later(averages)


def received(update: Update) -> Snapshot:
    if update.model is None:
        raise FedfuseError(f"client {update.client} sent no model, but the ensemble is made of client models")
    return update.model
