"""An algorithm is a value: what a client is sent, what it does, and how the server fuses the updates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, Protocol, get_args, get_type_hints, runtime_checkable

from typing_extensions import get_protocol_members, is_protocol

from fedfuse.context import Context
from fedfuse.facts import Facts, Score
from fedfuse.models.shared_head import with_head
from fedfuse.select import Selection
from fedfuse.types import Extras, FedfuseError, Groups, ServerState, Task, Update

P = ParamSpec("P")


class Brief(Protocol):
    """What a client is sent."""

    def __call__(self, server: ServerState, client: int, ctx: Context) -> Task: ...


class LocalWork(Protocol):
    """What a client does. `memory` is what it kept from its last round."""

    def __call__(self, task: Task, memory: Groups, ctx: Context) -> Update: ...


class Fuse(Protocol):
    """How the server turns the updates, a stream that can be read only once, into its next state."""

    def __call__(self, server: ServerState, updates: Iterable[Update], ctx: Context) -> tuple[ServerState, Facts]: ...


class Expect(Protocol):
    """What an update contains besides the model. Vetting refuses updates that contain anything else."""

    def __call__(self, server: ServerState, client: int, ctx: Context) -> Extras: ...


@dataclass(frozen=True)
class Roles:
    """The models of a run, by architecture."""

    clients: Mapping[str, float]  # the clients' architectures, with their weights
    server: str | None = None  # the server's own large model: where there is one, it is reported
    small_models: bool = True  # whether the server holds a model of each client architecture


class ModelRoles(Protocol):
    """Which models an algorithm uses, given those that the experiment names."""

    def __call__(self, clients: Mapping[str, float], server: str | None) -> Roles: ...


@dataclass(frozen=True)
class ClientModels:
    """The server holds a model of each client architecture."""

    def __call__(self, clients: Mapping[str, float], server: str | None) -> Roles:
        return Roles(clients)


@dataclass(frozen=True)
class LargeModel:
    """The server has a large model of its own, `models.server`, beside one of each client architecture.

    With `head`, every model ends in a shared head of this width.
    """

    head: int | None = None

    def __call__(self, clients: Mapping[str, float], server: str | None) -> Roles:
        weights = {with_head(arch, self.head): weight for arch, weight in clients.items()}
        return Roles(weights, with_head(named_server(server), self.head))


@dataclass(frozen=True)
class NoServerModel:
    """Only clients have models. The algorithm must say how they are scored (`Algorithm.scores`)."""

    def __call__(self, clients: Mapping[str, float], server: str | None) -> Roles:
        return Roles(clients, small_models=False)


class Scores(Protocol):
    """How an algorithm without a model at the server is scored: by architecture, and the validation accuracy if any."""

    def __call__(self, server: ServerState, ctx: Context) -> tuple[Mapping[str, Score], float | None]: ...


def named_server(server: str | None) -> str:
    """Return the architecture of the server's large model; raise an error if none is named."""
    if server is None:
        raise FedfuseError("this algorithm trains a large model at the server: name its architecture")
    return server


@dataclass(frozen=True)
class NothingMore:
    """Clients send nothing besides the model."""

    def __call__(self, server: ServerState, client: int, ctx: Context) -> Extras:
        return {}


@dataclass(frozen=True)
class SendModel:
    """Each client is sent the server's model of its own architecture."""

    def __call__(self, server: ServerState, client: int, ctx: Context) -> Task:
        return Task(client, ctx.round, server.models[ctx.archs[client]])


@runtime_checkable
class Checks(Protocol):
    """A part that can tell before a run that it would not work."""

    def check(self, ctx: Context) -> None:
        """Raise a FedfuseError if the experiment does not suit this part."""


def parts_of(part: object) -> Iterator[object]:
    """Yield this part and every part within it."""
    yield part
    if isinstance(part, tuple):
        for inner in part:
            yield from parts_of(inner)
    elif is_dataclass(part) and not isinstance(part, type):
        for item in fields(part):
            yield from parts_of(getattr(part, item.name))


def check_parts(algorithm: object, ctx: Context) -> None:
    """Let every part check the experiment."""
    for part in parts_of(algorithm):
        if isinstance(part, Checks):
            part.check(ctx)


def any_experiment(ctx: Context) -> None:
    """Accept every experiment."""


@dataclass(frozen=True)
class Algorithm:
    """A federated algorithm. Anything that supplies `brief`, `local` and `fuse` is one."""

    name: str
    local: LocalWork
    fuse: Fuse
    brief: Brief = field(default_factory=SendModel)
    expect: Expect = field(default_factory=NothingMore)
    models: ModelRoles = field(default_factory=ClientModels)
    rounds: int | None = None  # the number of rounds, where there is only one; None: any
    selection: Selection = "uniform"  # how cohorts are drawn, unless the experiment sets it
    scores: Scores | None = None  # by default the server's models are evaluated
    check: Callable[[Context], None] = any_experiment  # raises a FedfuseError for an experiment that it cannot run
    # The function and arguments that made it, so that a file can name them.
    made_by: tuple[Callable[..., Algorithm], Mapping[str, Any]] | None = field(default=None, compare=False, repr=False)


def paper(function: Callable[P, Algorithm]) -> Callable[P, Algorithm]:
    """Decorate a function that makes algorithms: they record it and its arguments, so that a file can name them."""

    @wraps(function)
    def make(*args: P.args, **kwargs: P.kwargs) -> Algorithm:
        _check_arguments(function, kwargs)
        return replace(function(*args, **kwargs), made_by=(make, kwargs))

    return make


@dataclass(frozen=True)
class SettingOf:
    """Marks an argument of a paper as a setting of a part, which is another argument."""

    part: str


@dataclass(frozen=True)
class NamedParts:
    """Marks an argument of a paper in which the name of a part, in a file, means other settings than its defaults."""

    parts: Mapping[str, Any]
    instead: Mapping[str, str] = field(default_factory=dict)  # a given setting -> the one that it replaces

    def __hash__(self) -> int:
        return id(self.parts)  # `Annotated` types are cached by their metadata


def _check_arguments(function: Callable[..., Algorithm], arguments: Mapping[str, Any]) -> None:
    """Refuse parts of another kind than the argument, and settings that both the argument and its part state."""
    hints, parameters = get_type_hints(function, include_extras=True), signature(function).parameters
    for name, value in arguments.items():
        for kind in (hints.get(name), *get_args(hints.get(name))):
            if kind is Algorithm and isinstance(value, str):
                raise FedfuseError(
                    f"{name} = {value!r}: give an Algorithm, as in {name}=fedprox(mu=0.1); names are for files and the "
                    "command line"
                )
            if is_protocol(kind) and value is not None and not isinstance(value, str | type):
                _check_kind(name, value, kind)
            if not isinstance(kind, SettingOf) or value is None:
                continue
            part = arguments.get(kind.part)
            if part is not None and part != parameters[kind.part].default:
                _check_stated_once(name, value, kind.part, part)


def _check_kind(name: str, value: object, kind: type) -> None:
    missing = sorted(member for member in get_protocol_members(kind) if not hasattr(value, member))
    if missing:
        raise FedfuseError(f"{name} = {value!r}: this is not a {kind.__name__}, because it has no {missing[0]}")


def _check_stated_once(name: str, value: object, role: str, part: object) -> None:
    own = next((field for field in fields(part) if field.name == name), None) if is_dataclass(part) else None
    if own is not None and getattr(part, name) not in (own.default, value):
        raise FedfuseError(f"{name} = {value!r}, but the {role} has {name} = {getattr(part, name)!r}: state it once")
