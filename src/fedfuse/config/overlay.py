"""Change settings of an experiment by dotted keys: `{"local.lr": 0.05}`."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from typing import Any, get_args

from fedfuse import signature
from fedfuse.algorithm import Algorithm
from fedfuse.algorithms import ALGORITHMS
from fedfuse.config.named import ConfigError, NamedSection, Problem
from fedfuse.config.parts import AlgorithmSection, stated_twice
from fedfuse.config.sections import DataSection, PartitionSection
from fedfuse.config.values import parse_call
from fedfuse.dotted import flatten
from fedfuse.types import FedfuseError

# Sections that a comparison may set per algorithm; of `run` only `rounds`, since one-shot has one round. All other
# settings are the same for all algorithms.
PER_ALGORITHM = ("models", "local", "run")

NAMED: Mapping[str, type[NamedSection]] = {
    "data": DataSection,
    "partition": PartitionSection,
    "algorithm": AlgorithmSection,
}


def overlaid(sections: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return sections with dotted keys set. A new algorithm, part, source, partition or pool drops the old settings.

    `algorithm.steps` replaces an earlier `algorithm.distiller.steps`, and the other way round; likewise `local.steps`
    and `local.epochs`. If `settings` state both, both remain, which is an error of the experiment.
    """
    result = {k: dict(v) if isinstance(v, Mapping) else v for k, v in sections.items() if k != "provenance"}
    for dotted, value in settings.items():
        *path, last = dotted.split(".")
        table: dict[str, Any] = result
        for i, part in enumerate(path):
            inner = table.get(part, {})
            if isinstance(inner, str):  # `data.pool = "noise"` may be followed by `data.pool.size = 100`
                inner = _section(inner, path[: i + 1])
            if not isinstance(inner, Mapping):
                raise ConfigError([Problem(dotted, value, f"{'.'.join(path[: i + 1])} is not a section")])
            table[part] = table = dict(inner)
        _set(table, path, last, value)
    new = flatten(settings)
    if isinstance(algorithm := result.get("algorithm"), Mapping):
        result["algorithm"] = _without_replaced(algorithm, "algorithm", new)
    for one, other in (("epochs", "steps"), ("steps", "epochs")):
        if f"local.{one}" in new and f"local.{other}" not in new and isinstance(local := result.get("local"), dict):
            local.pop(other, None)
    return result


def _section(text: str, path: Sequence[str]) -> dict[str, Any]:
    """Return the table of a section that is given as text: `fedprox(mu=0.1)` in place of an algorithm."""
    if path[0] == "algorithm" and len(path) > 1:
        with suppress(ValueError):  # reported by the section
            name, settings = parse_call(text)
            return {"name": name, **settings}
    return {_name_key(path) or "name": text}


def _without_replaced(algorithm: Mapping[str, Any], place: str, new: Container[str]) -> dict[str, Any]:
    """Remove the settings of an algorithm or its parts that a new setting, at the other of two places, replaces."""
    result = dict(algorithm)
    if str(called := result.get("name", "fedavg")).startswith(signature.LOCAL):
        return result
    try:
        function = signature.resolve(str(called), ALGORITHMS, "algorithm")
    except FedfuseError:
        return result  # reported by the section
    for name, part in stated_twice(function, result):
        outer, inner = f"{place}.{name}" in new, f"{place}.{part}.{name}" in new
        if outer and not inner:
            result[part] = {key: value for key, value in result[part].items() if key != name}
        if inner and not outer:
            del result[name]
    for name, hint in signature.hints_of(function).items():
        if Algorithm in get_args(hint) and isinstance(result.get(name), Mapping):
            result[name] = _without_replaced(result[name], f"{place}.{name}", new)
    return result


def _name_key(path: Sequence[str]) -> str | None:
    """Return the key with which the section at this path names its function; its other keys are settings of that."""
    if list(path) == ["data", "pool"]:
        return "kind"
    if len(path) > 1:
        return "name" if path[0] == "algorithm" else None
    return NAMED[path[0]].key if path and path[0] in NAMED else None


def _set(table: dict[str, Any], path: Sequence[str], key: str, value: Any) -> None:
    if key == _name_key(path) and table.get(key, value) != value:
        own = set(NAMED[path[0]].model_fields) if len(path) == 1 else set()
        for other in set(table) - own:
            del table[other]
    table[key] = value


def algorithm_settings(text: str) -> dict[str, Any]:
    """Parse an algorithm into dotted keys: `fedbe`, or `fedbe(samples=5, posterior="dirichlet")`.

    A dotted setting changes the experiment for this algorithm only: `fed-et(models.clients={"cnn"=1, "resnet8"=1})`.
    """
    try:
        name, settings = parse_call(text)
    except ValueError as error:
        raise FedfuseError(
            f'algorithm {text!r}: {error}. Write a name, or a name with settings: fedbe(samples=5, target="logits")'
        ) from error
    own = {f"algorithm.{key}": value for key, value in settings.items() if key not in PER_ALGORITHM}
    if wrong := [key for key in PER_ALGORITHM if not isinstance(settings.get(key, {}), dict)]:
        raise FedfuseError(
            f"algorithm {text!r}: {wrong[0]} is a section: name one of its keys, as in {wrong[0]}.KEY = VALUE"
        )
    other = {f"{key}.{name}": v for key in PER_ALGORITHM if key in settings for name, v in dict(settings[key]).items()}
    if shared := [key for key in other if key.startswith("run.") and key != "run.rounds"]:
        raise FedfuseError(
            f"algorithm {text!r}: {shared[0]} is the same for all algorithms; only run.rounds may differ"
        )
    return {"algorithm.name": name, **own, **other}
