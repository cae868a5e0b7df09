"""The sections of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator

from fedfuse import signature
from fedfuse.config.named import NamedSection, Section
from fedfuse.data.partition import SCHEMES
from fedfuse.data.pool import POOLS
from fedfuse.data.sources import SOURCES, source_function
from fedfuse.data.sources.memory import cache_arrays, is_arrays, is_data, section_of
from fedfuse.data.texts.tokenizer import SMALLEST
from fedfuse.models import precision
from fedfuse.models.defaults import AUTO
from fedfuse.select import Selection
from fedfuse.tracking import TRACKERS
from fedfuse.types import FedfuseError
from fedfuse.vet import Vetting


class PoolSection(NamedSection):
    """The public, unlabeled data at the server."""

    key, what, catalogue = "kind", "pool", POOLS
    kind: str = "split"

    @classmethod
    def from_value(cls, value: Any) -> Any:
        return {"kind": "source", "name": cache_arrays(value)} if is_arrays(value) else value


class DataSection(NamedSection):
    """The data source, and the data at the server: validation and pool."""

    key, what, catalogue = "source", "data source", SOURCES
    source: str
    validation: float = Field(0.1, ge=0, lt=1, description="share of the training data held out at the server")
    pool: PoolSection | None = None
    normalise: Literal["auto", "data"] = Field(
        "auto", description="of images: as the processors of hf: models say, else by the data's own statistics; or data"
    )
    tokenizer: str = Field("auto", description="of texts: auto, hf:<id or folder>, or the path of a tokenizer.json")
    vocabulary: int = Field(
        8000, ge=SMALLEST, description="of texts: tokens of a tokenizer that is trained on the pool"
    )
    max_length: int = Field(128, ge=3, description="of texts: tokens after which a text is cut")

    @classmethod
    def from_value(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and is_data(value.get("source")):
            return section_of(value["source"], {key: inner for key, inner in value.items() if key != "source"})
        return section_of(value, {}) if is_data(value) else value

    def function(self) -> signature.Function:
        return source_function(self.source)


class PartitionSection(NamedSection):
    """How the training data is split between clients."""

    key, what, catalogue = "scheme", "partition", SCHEMES
    scheme: str = "iid"
    clients: PositiveInt = 10
    keep: float = Field(1.0, gt=0, le=1, description="share of its data that each client keeps, of every class alike")


class ModelsSection(Section):
    """The clients' architecture (one name, or several with weights), and the server's large model.

    In Python, a function of (classes, shape) that returns a net may replace a name.
    """

    clients: str | dict[str, PositiveFloat] = Field(
        AUTO, description="an architecture, or several with their weights; auto is one that suits the data"
    )
    capability: str | None = Field(
        None, description="data column that ranks clients; by default architectures are drawn at random"
    )
    server: str | None = Field(None, description="the server's own large model, for algorithms that have one")

    @model_validator(mode="before")
    @classmethod
    def _from_value(cls, value: Any) -> Any:
        sections = {"clients": value} if isinstance(value, str) or callable(value) else value
        if not isinstance(sections, Mapping):
            return sections
        return {key: _names(inner, key) if key in ("clients", "server") else inner for key, inner in sections.items()}

    @field_validator("clients")
    @classmethod
    def _some(cls, clients: str | dict[str, float]) -> str | dict[str, float]:
        if not clients:
            raise ValueError("give at least one architecture")
        for name in (clients,) if isinstance(clients, str) else clients:
            try:
                precision.split(name)
            except FedfuseError as error:
                raise ValueError(str(error)) from error
        return clients

    @property
    def weights(self) -> Mapping[str, float]:
        return {self.clients: 1.0} if isinstance(self.clients, str) else self.clients


def _names(value: Any, role: str) -> Any:
    """Replace functions with their names. Several functions get equal weights."""
    if callable(value):
        return signature.name_of(value, role.removesuffix("s"))
    if isinstance(value, Mapping) and any(callable(inner) for inner in value.values()):
        return {
            **{signature.name_of(inner, label): 1.0 for label, inner in value.items() if callable(inner)},
            **{arch: weight for arch, weight in value.items() if not callable(weight)},
        }
    return value


class RunSection(Section):
    """Rounds, seed, parallelism, cohorts, and limits on what the server accepts."""

    rounds: PositiveInt = 20
    seed: NonNegativeInt = 0
    evaluate_every: PositiveInt = Field(
        1, description="rounds from one evaluation of the server's models to the next; the last is always evaluated"
    )
    discrepancy: bool = Field(
        False, description="measure how far each client's data is from the pool and from the others'; in simulation"
    )
    workers: NonNegativeInt = Field(0, description="worker processes; 0 is one per core, 1 is this process only")
    threads: PositiveInt = Field(
        1, description="compute threads per process; results are bit-identical only for the same number"
    )
    device: str = Field(
        "auto", description="where nets run: cpu, cuda, cuda:1, mps, ...; auto is the accelerator that there is"
    )
    precision: Literal["float32", "tf32", "bfloat16", "float16"] = Field(
        "float32",
        description="of nets' products and convolutions: tf32 on GPUs that have it; bfloat16 by autocast; float16 by "
        "autocast, with losses scaled",
    )
    deterministic: bool = Field(
        True, description="on accelerators, use deterministic algorithms only: the same bits again, but slower"
    )
    fraction: float = Field(1.0, gt=0, le=1, description="share of the clients that take part in a round")
    selection: Selection | None = Field(
        None, description="how cohorts are drawn; by default as in the algorithm's paper"
    )
    quorum: PositiveInt = Field(1, description="least number of accepted updates; with fewer, a round changes nothing")
    retries: NonNegativeInt = Field(0, description="how often a round below its quorum is repeated with another cohort")
    max_examples: PositiveInt = Field(10_000_000, description="largest number of examples that a client may claim")
    max_norm: PositiveFloat | None = Field(None, description="largest distance of a client's model from the server's")
    track: tuple[str, ...] = Field((), description="trackers that also receive the record of each round")

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
