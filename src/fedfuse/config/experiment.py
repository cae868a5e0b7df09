"""An experiment as a value: its validated sections. See `runs/` for running it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, get_args

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from fedfuse import signature
from fedfuse.config.named import ConfigError, NamedSection
from fedfuse.config.overlay import overlaid
from fedfuse.config.parts import AlgorithmSection, stated_settings
from fedfuse.config.sections import DataSection, ModelsSection, PartitionSection, RunSection
from fedfuse.config.values import format_value
from fedfuse.dotted import flatten
from fedfuse.local_settings import LocalSettings
from fedfuse.notebook import table
from fedfuse.types import FedfuseError

SECTIONS = ("data", "partition", "models", "local", "algorithm", "run")


class Experiment(BaseModel):
    """One federated experiment. Unknown keys are errors. A run directory's `experiment.toml` is an experiment too.

    In Python, `data` may be arrays, `models` a function that returns a net, and `algorithm` an Algorithm.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field("experiment", description="name in directories, tables and reports")
    data: DataSection
    partition: PartitionSection = PartitionSection()
    models: ModelsSection = ModelsSection()
    local: LocalSettings = LocalSettings(epochs=1)
    algorithm: AlgorithmSection = AlgorithmSection()
    run: RunSection = RunSection()
    provenance: dict[str, Any] | None = Field(None, description="written by a run: versions, threads, fingerprint")
    _stated: frozenset[str] = PrivateAttr(frozenset())

    def __init__(self, **sections: Any) -> None:
        try:
            super().__init__(**sections)
        except ValidationError as error:
            raise ConfigError.of(error, _known_keys) from error
        self._stated = frozenset(
            {f"run.{key}" for key in self.run.model_fields_set}
            | {f"algorithm.{key}" for key in stated_settings(self.algorithm)}
        )
        named_sections = {"data": self.data, "partition": self.partition, "algorithm": self.algorithm}
        if problems := [p for place, section in named_sections.items() for p in section.complete(place)]:
            raise ConfigError(problems)

    def resolved(self) -> dict[str, Any]:
        """Return all sections with their defaults filled in, as TOML values."""
        return {"name": self.name, **{name: _plain(getattr(self, name)) for name in SECTIONS}}

    def toml(self) -> str:
        return tomli_w.dumps(self.resolved())

    def with_settings(self, settings: Mapping[str, Any]) -> Experiment:
        """Return a copy with dotted keys set: {"local.lr": 0.05}."""
        changed = Experiment(**overlaid(self.resolved(), settings))
        same = changed.algorithm.name == self.algorithm.name
        kept = {key for key in self._stated if same or not key.startswith("algorithm.")}
        changed._stated = frozenset({*kept, *flatten(settings)})
        return changed

    def states(self, key: str) -> bool:
        """Return whether the user stated this setting of [run] or [algorithm]: others may be fitted to the data."""
        return key in self._stated

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Experiment) and self.resolved() == other.resolved()

    def __repr__(self) -> str:
        return f"Experiment({self.name!r}, {', '.join(f'{key}: {value}' for key, value in self._summary().items())})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        rows = [(key, format_value(value)) for key, value in flatten(self.resolved()).items() if key != "name"]
        return (
            table(f"Experiment {self.name}", (), self._summary().items())
            + f"<details><summary>all settings</summary>{table('', ('key', 'value'), rows)}</details>"
        )

    def _summary(self) -> dict[str, object]:
        return {
            "data": self.data.source,
            "clients": self.partition.clients,
            "partition": self.partition.scheme,
            "models": ", ".join(self.models.weights),
            "algorithm": self.algorithm.name,
            "rounds": self.run.rounds,
            "seed": self.run.seed,
        }

    @property
    def local_objects(self) -> list[str]:
        """The names of its Python objects that exist only in this process."""
        names = [*self.models.weights, self.models.server, *flatten(_plain(self.algorithm)).values()]
        return [name for name in names if isinstance(name, str) and name.startswith(signature.LOCAL)]


def _plain(value: Any) -> Any:
    """Return a section as TOML values. A None is left out, or "none" where the default is something else."""
    if isinstance(value, BaseModel):
        fields = {name: getattr(value, name) for name in type(value).model_fields}
        settings = value.stated_settings() if isinstance(value, NamedSection) else {}
        return {k: _plain(v) for k, v in (fields | settings).items() if v is not None}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return value


def _known_keys(place: Sequence[str]) -> list[str]:
    """Return the keys that are allowed at this place of an experiment."""
    model: type[BaseModel] = Experiment
    for part in place:
        if part not in model.model_fields:
            return []
        kinds = [model.model_fields[part].annotation, *get_args(model.model_fields[part].annotation)]
        model = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), BaseModel)
    return list(model.model_fields)


def builtin() -> dict[str, Traversable]:
    """Return the built-in experiments by name."""
    folder = resources.files("fedfuse") / "experiments"
    files = [f for f in folder.iterdir() if f.name.endswith(".toml")]
    return {f.name.removesuffix(".toml"): f for f in sorted(files, key=lambda f: f.name)}


def load(experiment: str | Path, settings: Mapping[str, Any] | None = None) -> Experiment:
    """Load an experiment from a TOML file or by its built-in name, and apply `settings` (dotted keys)."""
    text, file = _read(str(experiment))
    try:
        sections = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also an integer of thousands of digits
        raise FedfuseError(f"{file}: not valid TOML: {error}") from error
    if not sections:
        raise FedfuseError(f"{file}: is empty: give at least the section [data]")
    sections.setdefault("name", Path(file).stem)
    try:
        loaded = Experiment(**overlaid(sections, settings or {}))
    except ConfigError as error:
        raise ConfigError(error.problems, file) from error
    if str(experiment) in builtin():  # what a built-in experiment says is not the user's choice
        loaded._stated = frozenset(flatten(settings or {}))
    return loaded


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
        f"no experiment {experiment!r}: it is neither a file nor built in{signature.did_you_mean(experiment, known)} "
        f"Built in: {', '.join(known)}"
    )
