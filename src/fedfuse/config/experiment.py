"""An experiment: its sections, checked, and `run`, which the command line and Flower come through as well."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, get_args

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from fedfuse import models, rng
from fedfuse.algorithm import Algorithm
from fedfuse.config.sections import (
    AlgorithmSection,
    ConfigError,
    DataSection,
    ModelsSection,
    NamedSection,
    PartitionSection,
    Problem,
    RunSection,
)
from fedfuse.context import Context, FreshPool, Nets, assign
from fedfuse.data.examples import Examples
from fedfuse.data.federation import Federation, federate
from fedfuse.data.sources import from_shelf
from fedfuse.data.sources.location import Shelf
from fedfuse.local_settings import LocalSettings
from fedfuse.models.shared_head import with_head
from fedfuse.records.observer import Observer
from fedfuse.runs.run import Run, perform
from fedfuse.signature import did_you_mean
from fedfuse.terminal.progress import Display, Silent
from fedfuse.types import FedfuseError


class Experiment(BaseModel):
    """One federated experiment, as a value. Unknown keys are refused; the file of a run directory is one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field("experiment", description="what results are filed under")
    data: DataSection
    partition: PartitionSection = PartitionSection()
    models: ModelsSection
    local: LocalSettings
    algorithm: AlgorithmSection = AlgorithmSection()
    run_: RunSection = Field(RunSection(), alias="run")
    provenance: dict[str, Any] | None = Field(None, description="written by a run: versions, threads, fingerprint")

    def __init__(self, **sections: Any) -> None:
        try:
            super().__init__(**sections)
        except ValidationError as error:
            raise ConfigError.of(error, _known_keys) from error
        named = {"data": self.data, "partition": self.partition, "algorithm": self.algorithm}
        if problems := [p for place, section in named.items() for p in section.settle(place)]:
            raise ConfigError(problems)

    def run(
        self,
        out: str | Path | None = None,
        *,
        resume: bool = False,
        display: Display | None = None,
        observers: Sequence[Observer] = (),
    ) -> Run:
        """Run all rounds, or those that are left with `resume`, into the directory `out`."""
        return perform(self, out, resume=resume, display=display or Silent(), observers=observers)

    def federation(self, shelf: Shelf | None = None) -> Federation:
        """Load the data and spread it, as this experiment says."""
        shelf = shelf or Shelf.at()
        pool = self.data.pool
        return federate(
            from_shelf(shelf, self.data.source, self.data.settings),
            scheme=partial(self.partition.function(), **self.partition.settings),
            clients=self.partition.clients,
            validation=self.data.validation,
            pool=None if pool is None else partial(pool.function(), shelf=shelf, **pool.settings),
            seed=self.run_.seed,
        )

    def context(self, federation: Federation, declared: Tensor | None = None) -> Context:
        """What the parts of a round may ask for. The same in every process of a run.

        declared: Tensor  # (K,) the clients' capabilities, where they say themselves and no column of the data does
        """
        algorithm = self.algorithm.build()
        weights, server = self._architectures(algorithm)
        capability = declared if self.models.capability is None else federation.client_means(self.models.capability)
        archs = assign(weights, len(federation.parts), rng.generator(self.run_.seed, "architectures"), capability)
        return Context(
            self.run_.seed,
            self.run_.rounds,
            self.local,
            federation,
            archs,
            Nets(federation.train.classes, federation.train.shape),
            fresh_pool=self._fresh_pool(federation.train),
            small_models=algorithm.small_models,
            server=server,
        )

    def _architectures(self, algorithm: Algorithm) -> tuple[dict[str, float], str | None]:
        """The clients' architectures with their weights, and the server's own, as the algorithm wants them to end."""
        weights = {with_head(arch, algorithm.head): weight for arch, weight in self.models.weights.items()}
        if not algorithm.large_server:
            return weights, None
        if self.models.server is None:
            right = f"{algorithm.name} trains a large model at the server: name its architecture"
            raise ConfigError([Problem("models.server", None, right)])
        server = algorithm.server_arch(tuple(weights), with_head(self.models.server, algorithm.head))
        if server in weights:
            right = "is an architecture of the clients too: the server's own model needs another one"
            raise ConfigError([Problem("models.server", self.models.server, right)])
        return weights, server

    def _fresh_pool(self, train: Examples) -> FreshPool | None:
        """The pool's function again, where its settings say that each round draws its own."""
        pool = self.data.pool
        if pool is None or not pool.settings.get("fresh"):
            return None
        function, settings = pool.function(), pool.settings
        return FreshPool(lambda generator: function(train, generator, shelf=Shelf.at(), **settings).pool)

    def check(self, shelf: Shelf | None = None) -> Federation:
        """Everything short of training: data, partition, models and algorithm all resolve."""
        federation = self.federation(shelf)
        algorithm = self.algorithm.build()
        weights, server = self._architectures(algorithm)
        for key, arch in [*(("clients", a) for a in weights), *([("server", server)] if server else [])]:
            try:
                models.check(arch, classes=federation.train.classes, shape=federation.train.shape)
            except FedfuseError as error:
                raise ConfigError([Problem(f"models.{key}", arch, str(error))]) from error
        algorithm.check(self.context(federation))
        return federation

    def resolved(self) -> dict[str, Any]:
        """All sections with their defaults filled in, as TOML can say them."""
        sections = {
            name: getattr(self, field)
            for field, name in (
                ("data", "data"),
                ("partition", "partition"),
                ("models", "models"),
                ("local", "local"),
                ("algorithm", "algorithm"),
                ("run_", "run"),
            )
        }
        return {"name": self.name, **{name: _plain(section) for name, section in sections.items()}}

    def toml(self) -> str:
        return tomli_w.dumps(self.resolved())

    def with_settings(self, settings: Mapping[str, Any]) -> Experiment:
        """A copy with dotted keys set: {"local.lr": 0.05}."""
        return Experiment(**overridden(self.resolved(), settings))


def _plain(value: Any) -> Any:
    """A section as TOML can say it: what is None is left out."""
    if isinstance(value, BaseModel):
        fields = {name: getattr(value, name) for name in type(value).model_fields}
        extra = value.settings if isinstance(value, NamedSection) else {}
        return {k: _plain(v) for k, v in (fields | extra).items() if v is not None}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return value


def _known_keys(place: Sequence[str]) -> list[str]:
    """The keys that may stand at this place of an experiment."""
    model: type[BaseModel] = Experiment
    for part in place:
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        if part not in fields:
            return []
        kinds = [fields[part].annotation, *get_args(fields[part].annotation)]
        model = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), BaseModel)
    return [field.alias or name for name, field in model.model_fields.items()]


def overridden(sections: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Sections with dotted keys set. A new algorithm, source, partition or pool drops the old one's settings."""
    result = {k: dict(v) if isinstance(v, Mapping) else v for k, v in sections.items() if k != "provenance"}
    for dotted, value in settings.items():
        *path, last = dotted.split(".")
        table: dict[str, Any] = result
        for i, part in enumerate(path):
            inner = table.get(part, {})
            if isinstance(inner, str):  # `data.pool = "noise"` may be followed by `data.pool.size = 100`
                inner = {_selector((*path[: i + 1],)) or "name": inner}
            if not isinstance(inner, Mapping):
                raise ConfigError([Problem(dotted, value, f"{'.'.join(path[: i + 1])} is not a section")])
            table[part] = table = dict(inner)
        _set(table, tuple(path), last, value)
    return result


def algorithm_settings(text: str) -> dict[str, Any]:
    """Dotted keys for an algorithm as one says it: `fedbe`, or `fedbe(samples=5, posterior="dirichlet")`.

    A dotted setting is the experiment's, for this algorithm alone: `fed-et(models.clients={"cnn"=1, "resnet8"=1})`.
    """
    said = re.fullmatch(r"([^()]+?)\s*(?:\((.*)\))?", text.strip(), re.DOTALL)
    try:
        if said is None:
            raise ValueError("parentheses that do not match")
        settings = tomllib.loads(f"given = {{ {said[2] or ''} }}")["given"]
    except ValueError as error:
        raise FedfuseError(
            f'algorithm {text!r}: {error}. Write a name, or a name with settings: fedbe(samples=5, target="logits")'
        ) from error
    own = {f"algorithm.{key}": value for key, value in settings.items() if key not in FOR_ONE}
    beside = {f"{key}.{name}": v for key in FOR_ONE if key in settings for name, v in dict(settings[key]).items()}
    if refused := [key for key in beside if key.startswith("run.") and key != "run.rounds"]:
        raise FedfuseError(
            f"algorithm {text!r}: {refused[0]} is the same for all algorithms; of run only rounds is not"
        )
    return {"algorithm.name": said[1], **own, **beside}


# Sections that a comparison may set for one of its algorithms; of `run` only the rounds, since one-shot has one. All
# else is the same for every one of them.
FOR_ONE = ("models", "local", "run")

OWN_KEYS: Mapping[tuple[str, ...], type[NamedSection]] = {
    ("data",): DataSection,
    ("partition",): PartitionSection,
    ("algorithm",): AlgorithmSection,
}


def _selector(path: tuple[str, ...]) -> str | None:
    if path == ("data", "pool"):
        return "kind"
    return OWN_KEYS[path].key if path in OWN_KEYS else None


def _set(table: dict[str, Any], path: tuple[str, ...], key: str, value: Any) -> None:
    if key == _selector(path) and table.get(key, value) != value:
        section = OWN_KEYS.get(path)
        keep = set() if section is None else set(section.model_fields)
        for other in set(table) - keep:
            del table[other]
    table[key] = value


def builtin() -> dict[str, Traversable]:
    """The experiments that come with the package, by name."""
    folder = resources.files("fedfuse") / "experiments"
    files = [f for f in folder.iterdir() if f.name.endswith(".toml")]
    return {f.name.removesuffix(".toml"): f for f in sorted(files, key=lambda f: f.name)}


def load(experiment: str | Path, settings: Mapping[str, Any] | None = None) -> Experiment:
    """The experiment of a TOML file or a built-in name, with `settings` (dotted keys) on top."""
    text, file = _read(str(experiment))
    try:
        sections = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FedfuseError(f"{file}: not valid TOML: {error}") from error
    sections.setdefault("name", Path(file).stem)
    try:
        return Experiment(**overridden(sections, settings or {}))
    except ConfigError as error:
        raise ConfigError(error.problems, file) from error


def _read(experiment: str) -> tuple[str, str]:
    known = builtin()
    if experiment in known:
        return known[experiment].read_text(encoding="utf-8"), f"{experiment}.toml"
    path = Path(experiment)
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8"), experiment
        except (OSError, UnicodeDecodeError) as error:
            raise FedfuseError(f"{experiment}: cannot be read: {error}") from error
    raise FedfuseError(
        f"no experiment {experiment!r}: it is neither a file nor built in{did_you_mean(experiment, known)} "
        f"Built in: {', '.join(known)}"
    )
