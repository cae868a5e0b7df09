"""Algorithms and their parts by name: `distiller = {name = "adam", steps = 500}`, or just `distiller = "adam"`.

Names are resolved here and not in the core. A part is a class whose fields are its settings, or a function. A name is
a key of `PARTS`, or `package.module:Class` for a user's own part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin

from pydantic import BaseModel
from typing_extensions import is_protocol

from fedfuse import signature
from fedfuse.algorithm import Algorithm, NamedParts, SettingOf
from fedfuse.algorithms import ALGORITHMS
from fedfuse.algorithms.decentralised_logits.topology import Complete, RandomNeighbours, Ring, Topology
from fedfuse.algorithms.ds_fl.entropy_reduction import EntropyReduced
from fedfuse.algorithms.settings import missing_setting
from fedfuse.config.named import NamedSection, Problem
from fedfuse.config.values import parse_call
from fedfuse.dotted import flatten
from fedfuse.fusion import (
    SGD,
    SWA,
    AdamCosine,
    Admission,
    AdmitAll,
    Aggregate,
    Anchors,
    Clients,
    CoordinateMedian,
    DeltaGaussian,
    DiagonalGaussian,
    DirichletMixture,
    Distiller,
    DropWorst,
    Ensemble,
    GroundTruth,
    MeanLogits,
    MeanLosses,
    MeanProbs,
    MedianLogits,
    Momentum,
    Posterior,
    Samples,
    Target,
    VarianceWeighted,
    WeightedMean,
)
from fedfuse.fusion import Union as UnionOfEnsembles
from fedfuse.types import FedfuseError

PARTS: Mapping[Any, Mapping[str, type[Any]]] = {
    Aggregate: {"mean": WeightedMean, "momentum": Momentum, "median": CoordinateMedian},
    Target: {
        "logits": MeanLogits,
        "probs": MeanProbs,
        "losses": MeanLosses,
        "variance": VarianceWeighted,
        "median": MedianLogits,
        "entropy-reduction": EntropyReduced,
        "ground-truth": GroundTruth,
    },
    Distiller: {"adam": AdamCosine, "sgd": SGD, "swa": SWA},
    Posterior: {"gaussian": DiagonalGaussian, "dirichlet": DirichletMixture, "delta-gaussian": DeltaGaussian},
    Admission: {"all": AdmitAll, "drop-worst": DropWorst},
    Topology: {"ring": Ring, "complete": Complete, "random": RandomNeighbours},
    Ensemble: {"clients": Clients, "anchors": Anchors, "samples": Samples, "union": UnionOfEnsembles},
}


def file_type(hint: Any) -> Any:
    """Return the type that a file uses for an argument with this annotation."""
    if get_origin(hint) is Annotated:
        return file_type(get_args(hint)[0])
    if hint is Algorithm:
        return AlgorithmSection
    if is_protocol(hint):
        return part_section(hint)
    arguments = tuple(file_type(argument) for argument in get_args(hint))
    if arguments == get_args(hint):
        return hint
    if get_origin(hint) in (Union, UnionType):
        return Union[arguments]  # noqa: UP007  the types are known only at run time
    return tuple[arguments]  # type: ignore[valid-type]


def file_value(value: Any, hint: Any) -> Any:
    """Return a default value in the form that files use."""
    kinds = [kind for kind in (hint, *get_args(hint)) if is_protocol(kind)]
    if value is None or not kinds:
        return value
    if isinstance(value, tuple):
        return tuple(file_value(item, kinds[0]) for item in value)
    return part_section(kinds[0])(**section_of(value, kinds[0]))


def section_of(value: Any, protocol: Any) -> dict[str, Any]:
    """Return the keys of the section that rebuilds this part. Raise an error if another process cannot import it."""
    thing = type(value) if is_dataclass(value) else value
    names = {cls: name for name, cls in PARTS.get(protocol, {}).items()}
    name = names.get(thing) or signature.importable_name(thing)
    if name is None:
        raise FedfuseError(
            f"{thing!r} cannot be written to a file: define it at the top level of a module, not in a notebook or a "
            "function"
        )
    if not is_dataclass(value):
        return {"name": name}
    hints = signature.hints_of(thing)
    settings = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    return {"name": name, **{key: file_value(v, hints[key]) for key, v in settings.items()}}


class CallSection(NamedSection):
    """A section that may also be written like a call: `fedprox(mu=0.1)`, `package.module:function(lr=0.03)`."""

    @classmethod
    def from_text(cls, text: str) -> dict[str, Any]:
        if "(" not in text or text.startswith(signature.LOCAL):
            return {cls.key: text}
        name, settings = parse_call(text)
        if cls.key in settings:
            raise ValueError(f"{cls.key} stands before the brackets: leave it out of them")
        return {cls.key: name, **settings}


class PartSection(CallSection):
    """A part of an algorithm: its name and its settings."""

    key: ClassVar[str] = "name"
    protocol: ClassVar[Any] = None
    name: str

    @classmethod
    def from_value(cls, value: Any) -> Any:
        plain = isinstance(value, Mapping | NamedSection | bool | int | float | list)
        return value if plain else section_of(value, cls.protocol)

    def settings_schema(self) -> type[BaseModel]:
        return signature.schema(self.function(), file_type, file_value)

    def complete(self, place: str) -> list[Problem]:
        try:
            if not isinstance(self.function(), type):  # the function itself is the part, and has no settings
                return [Problem(f"{place}.{key}", value, "is not a setting") for key, value in self.settings.items()]
        except FedfuseError:
            pass  # reported by the check below
        return super().complete(place)

    def build(self) -> Any:
        """Build the part."""
        function = self.function()
        return signature.call(function, build_all(self.settings)) if isinstance(function, type) else function


@cache
def part_section(protocol: Any) -> type[PartSection]:
    """Return the section class for parts of this kind."""
    kind, known = protocol, PARTS.get(protocol, {})

    class SectionOfKind(PartSection):
        what: ClassVar[str] = kind.__name__.lower()
        catalogue: ClassVar[Mapping[str, signature.Function]] = known
        protocol: ClassVar[Any] = kind

    return SectionOfKind


def build_all(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with each section replaced by what it builds."""
    return {key: _build(value) for key, value in settings.items()}


def _build(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_build(item) for item in value)
    return value.build() if isinstance(value, PartSection | AlgorithmSection) else value


class AlgorithmSection(CallSection):
    """The algorithm by name, and its hyperparameters."""

    key, what, catalogue = "name", "algorithm", ALGORITHMS
    name: str = "fedavg"

    @classmethod
    def from_value(cls, value: Any) -> Any:
        return algorithm_keys(value) if isinstance(value, Algorithm) else value

    def function(self) -> signature.Function:
        if not self.name.startswith(signature.LOCAL):
            return super().function()
        algorithm = signature.local_object(self.name)
        return lambda: algorithm

    def complete(self, place: str) -> list[Problem]:
        """As for every section. A part given without a name is the default part with these settings.

        Where the algorithm says what a part's name means (`NamedParts`), other settings come from that part.
        """
        assert self.__pydantic_extra__ is not None
        try:
            function = self.function()
        except FedfuseError:
            return super().complete(place)
        hints, settings = signature.hints_of(function), self.settings
        for parameter in signature.settings_of(function):
            value, default = self.settings.get(parameter.name), signature.default_of(function, parameter)
            if isinstance(value, Mapping) and "name" not in value and is_dataclass(default):
                section = file_value(default, hints[parameter.name])
                self.__pydantic_extra__[parameter.name] = {"name": section.name, **section.settings, **value}
            for mark in get_args(hints[parameter.name])[1:]:
                given = {"name": value} if isinstance(value, str) else value
                if isinstance(mark, NamedParts) and isinstance(given, Mapping) and given.get("name") in mark.parts:
                    self.__pydantic_extra__[parameter.name] = _completed(given, mark, hints[parameter.name])
        return [_stated_twice(settings, name, part, place) for name, part in stated_twice(function, settings)] or (
            super().complete(place)
        )

    def settings_schema(self) -> type[BaseModel]:
        return signature.schema(self.function(), file_type, file_value)

    def pass_on(self, place: str) -> list[Problem]:
        """Move each argument that is a setting of a part into that part's section. Return the problems."""
        assert self.__pydantic_extra__ is not None
        problems = []
        hints = signature.hints_of(self.function())
        for name, value in self.settings.items():
            owners = [mark.part for mark in get_args(hints.get(name))[1:] if isinstance(mark, SettingOf)]
            part = self.settings.get(owners[0]) if owners else None
            if value is None or not isinstance(part, PartSection):
                continue
            try:
                problem = missing_setting(part.function(), name)
            except FedfuseError:
                continue  # an unknown part is reported by its own section
            if problem is not None:
                problems.append(Problem(f"{place}.{name}", value, problem))
                continue
            assert part.__pydantic_extra__ is not None
            part.__pydantic_extra__[name] = value
            self.__pydantic_extra__[name] = None
        return problems

    def build(self) -> Algorithm:
        """Build the algorithm."""
        algorithm = signature.call(self.function(), build_all(self.settings))
        if not isinstance(algorithm, Algorithm):
            raise FedfuseError(f"algorithm {self.name!r} returned a {type(algorithm).__name__}, not an Algorithm")
        return algorithm


def stated_settings(section: NamedSection) -> set[str]:
    """Return the settings that a section states, as dotted keys, before its defaults are filled in.

    Of a part that was given as a Python object, those that differ from the part's defaults.
    """
    keys = set()
    for name, value in section.settings.items():
        if isinstance(value, PartSection):
            defaults = {
                p.name: signature.default_of(value.function(), p) for p in signature.settings_of(value.function())
            }
            keys |= {f"{name}.{key}" for key, inner in value.settings.items() if inner != defaults.get(key)}
        else:
            keys |= set(flatten({name: value}))
    return keys


def stated_twice(function: signature.Function, settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return each argument of an algorithm that its part's table states too, with the name of that part."""
    pairs = []
    for name, hint in signature.hints_of(function).items():
        for mark in get_args(hint)[1:]:
            part = settings.get(mark.part) if isinstance(mark, SettingOf) else None
            if isinstance(part, Mapping) and None not in (settings.get(name), part.get(name)):
                pairs.append((name, mark.part))
    return pairs


def _stated_twice(settings: Mapping[str, Any], name: str, part: str, place: str) -> Problem:
    inner = f"{place}.{part}.{name}"
    right = f"{inner} = {settings[part][name]!r} states the same setting: leave out {place}.{name} or {inner}"
    return Problem(f"{place}.{name}", settings[name], right)


def _completed(given: Mapping[str, Any], mark: NamedParts, hint: Any) -> dict[str, Any]:
    """Return the part's keys with the settings that its name means, unless they are complete, as in a stored file."""
    part = mark.parts[given["name"]]
    meant = file_value(part, hint).settings
    own = {field.name for field in fields(part) if field.default is not None}
    if own <= given.keys():
        return dict(given)
    replaced = {old for new, old in mark.instead.items() if given.get(new) is not None}
    return {**{key: value for key, value in meant.items() if key not in replaced}, **given}


def algorithm_keys(algorithm: Algorithm) -> dict[str, Any]:
    """Return the keys of the section that rebuilds this algorithm with the call that made it.

    If it was made or changed in another way, return a name that only this process can resolve.
    """
    if algorithm.made_by is not None:
        function, arguments = algorithm.made_by
        names = {function: name for name, function in ALGORITHMS.items()}
        name = names.get(function) or signature.importable_name(function)
        try:
            if name is not None and signature.call(function, arguments) == algorithm:
                hints = signature.hints_of(function)
                return {"name": name, **{key: _argument(value, hints.get(key)) for key, value in arguments.items()}}
        except FedfuseError:
            pass  # one of its parts cannot be written to a file
    return {"name": signature.name_of(algorithm, algorithm.name)}


def _argument(value: Any, hint: Any) -> Any:
    return algorithm_keys(value) if isinstance(value, Algorithm) else file_value(value, hint)
