"""The sections of an experiment, and what is said when one is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from fedfuse import signature
from fedfuse.algorithm import Algorithm
from fedfuse.algorithms import ALGORITHMS
from fedfuse.data.partition import SCHEMES
from fedfuse.data.pool import POOLS
from fedfuse.data.sources import SOURCES, source_function
from fedfuse.select import Selection
from fedfuse.tracking import TRACKERS
from fedfuse.types import FedfuseError
from fedfuse.vet import Vetting


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where, the value, and what would be right."""

    key: str
    value: Any
    right: str

    def __str__(self) -> str:
        return f"{self.key} = {self.value!r}: {self.right}"


class ConfigError(FedfuseError):
    """An experiment that cannot be run as it is written."""

    def __init__(self, problems: Sequence[Problem], file: str | None = None) -> None:
        self.problems, self.file = problems, file
        super().__init__("\n".join(f"{file}: {p}" if file else str(p) for p in problems))

    @staticmethod
    def of(error: ValidationError, known: Callable[[Sequence[str]], Iterable[str]], prefix: str = "") -> ConfigError:
        """From pydantic's findings; `known` gives the keys that may stand at a place."""
        return ConfigError([_problem(dict(e), known, prefix) for e in error.errors(include_url=False)])


def _problem(found: dict[str, Any], known: Callable[[Sequence[str]], Iterable[str]], prefix: str) -> Problem:
    place = [str(part) for part in found["loc"]]
    key = ".".join(filter(None, [prefix, *place])) or "experiment"
    if found["type"] == "extra_forbidden":
        keys = sorted(known(place[:-1]))
        right = f"is not a known key{signature.did_you_mean(place[-1], keys)} Known here: {', '.join(keys) or 'none'}"
        return Problem(key, found["input"], right)
    if found["type"] == "missing":
        return Problem(key, None, "is required and was not given")
    message = found["msg"].removeprefix("Value error, ")
    return Problem(key, found["input"], message[0].lower() + message[1:])


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NamedSection(BaseModel):
    """A section that names a function; the keys that are not the section's own are that function's settings."""

    model_config = ConfigDict(frozen=True, extra="allow")
    key: ClassVar[str]
    what: ClassVar[str]
    catalogue: ClassVar[Mapping[str, signature.Function]]

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {cls.key: value} if isinstance(value, str) else value

    def settle(self, place: str) -> list[Problem]:
        """Check the settings against the function's signature and fill in its defaults, here and in what it holds.

        A resolved experiment so states all that it runs with. What is wrong is given back, by its full key.
        """
        assert self.__pydantic_extra__ is not None
        try:
            function = self.function()
        except FedfuseError as error:
            return [Problem(f"{place}.{self.key}", getattr(self, self.key), str(error))]
        keys = [p.name for p in signature.settings_of(function)]
        try:
            settings = signature.schema(function, self.spoken()).model_validate(self.settings)
        except ValidationError as error:
            return list(ConfigError.of(error, lambda _: [*type(self).model_fields, *keys], place).problems)
        self.__pydantic_extra__.update({key: getattr(settings, key) for key in keys})
        held = {**{f: getattr(self, f) for f in type(self).model_fields}, **self.settings}
        inner = ((key, value) for key, value in held.items() if isinstance(value, NamedSection))
        return [problem for key, value in inner for problem in value.settle(f"{place}.{key}")]

    @classmethod
    def spoken(cls) -> tuple[tuple[Any, Any], ...]:
        """Which annotations a file says by another type."""
        return ()

    def function(self) -> signature.Function:
        return signature.resolve(getattr(self, self.key), self.catalogue, self.what)

    @property
    def settings(self) -> dict[str, Any]:
        """The function's own arguments."""
        return dict(self.__pydantic_extra__ or {})


class PoolSection(NamedSection):
    """The public, unlabeled data at the server."""

    key, what, catalogue = "kind", "pool", POOLS
    kind: str = "split"


class DataSection(NamedSection):
    """Where examples come from, and what of them the server holds."""

    key, what, catalogue = "source", "data source", SOURCES
    source: str
    validation: float = Field(0.1, ge=0, lt=1, description="share of the training data held out at the server")
    pool: PoolSection | None = None

    def function(self) -> signature.Function:
        return source_function(self.source)


class PartitionSection(NamedSection):
    """How the training data is spread over clients."""

    key, what, catalogue = "scheme", "partition", SCHEMES
    scheme: str = "iid"
    clients: PositiveInt = 10


class ModelsSection(Section):
    """The architecture of the clients, one name or several with their weights, and the server's large one."""

    clients: str | dict[str, PositiveFloat]
    capability: str | None = Field(None, description="column of the data that ranks clients; else drawn by the seed")
    server: str | None = Field(None, description="the large model of algorithms whose server has its own")

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {"clients": value} if isinstance(value, str) else value

    @property
    def weights(self) -> Mapping[str, float]:
        return {self.clients: 1.0} if isinstance(self.clients, str) else self.clients


class AlgorithmSection(NamedSection):
    """The algorithm by name, and its hyperparameters."""

    key, what, catalogue = "name", "algorithm", ALGORITHMS
    name: str = "fedavg"

    @classmethod
    def spoken(cls) -> tuple[tuple[Any, Any], ...]:
        return ((Algorithm | None, AlgorithmSection | None), (Algorithm, AlgorithmSection))

    def build(self) -> Algorithm:
        """The algorithm as a value."""
        if problems := self.settle("algorithm"):
            raise ConfigError(problems)
        settings = {k: v.build() if isinstance(v, AlgorithmSection) else v for k, v in self.settings.items()}
        algorithm = self.function()(**settings)
        if not isinstance(algorithm, Algorithm):
            raise FedfuseError(f"algorithm {self.name!r} gave a {type(algorithm).__name__}, not an Algorithm")
        return algorithm


class RunSection(Section):
    """How long, how many at once, with which seed, and what the server accepts."""

    rounds: PositiveInt = 20
    seed: NonNegativeInt = 0
    workers: NonNegativeInt = Field(0, description="worker processes; 0 is one per core, 1 is none beside this one")
    threads: PositiveInt = Field(1, description="compute threads per process; their number changes the bits")
    fraction: float = Field(1.0, gt=0, le=1, description="share of the clients that take part in a round")
    selection: Selection | None = Field(None, description="how cohorts are drawn; by default as the algorithm's paper")
    quorum: PositiveInt = Field(1, description="accepted updates without which a round changes nothing")
    retries: NonNegativeInt = Field(0, description="how often a round below its quorum is asked of another cohort")
    max_examples: PositiveInt = Field(10_000_000, description="most examples that a client may claim")
    max_norm: PositiveFloat | None = Field(None, description="how far a client's model may move from the server's")
    track: tuple[str, ...] = Field((), description="trackers that are told of each round beside the records")

    @field_validator("track")
    @classmethod
    def _known_trackers(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in TRACKERS:
                hint = signature.did_you_mean(name, TRACKERS)
                raise ValueError(f"no tracker is called {name!r}{hint} Known: {', '.join(TRACKERS)}")
        return names

    def vetting(self) -> Vetting:
        return Vetting(self.quorum, self.max_examples, self.max_norm)
