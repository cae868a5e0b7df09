"""Settings on top of an experiment, by dotted keys: `{"local.lr": 0.05}`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from fedfuse.config.named import ConfigError, NamedSection, Problem
from fedfuse.config.parts import AlgorithmSection
from fedfuse.config.sections import DataSection, PartitionSection
from fedfuse.types import FedfuseError

# Sections that a comparison may set for one of its algorithms; of `run` only the rounds, since one-shot has one. All
# else is the same for every one of them.
PER_ALGORITHM = ("models", "local", "run")

NAMED: Mapping[str, type[NamedSection]] = {
    "data": DataSection,
    "partition": PartitionSection,
    "algorithm": AlgorithmSection,
}


def overlaid(sections: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Sections with dotted keys set. A new algorithm, part, source, partition or pool drops the old one's settings."""
    result = {k: dict(v) if isinstance(v, Mapping) else v for k, v in sections.items() if k != "provenance"}
    for dotted, value in settings.items():
        *path, last = dotted.split(".")
        table: dict[str, Any] = result
        for i, part in enumerate(path):
            inner = table.get(part, {})
            if isinstance(inner, str):  # `data.pool = "noise"` may be followed by `data.pool.size = 100`
                inner = {_name_key(path[: i + 1]) or "name": inner}
            if not isinstance(inner, Mapping):
                raise ConfigError([Problem(dotted, value, f"{'.'.join(path[: i + 1])} is not a section")])
            table[part] = table = dict(inner)
        _set(table, path, last, value)
    return result


def _name_key(path: Sequence[str]) -> str | None:
    """The key by which the section at this path names its function: what else is in it are that function's settings."""
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
    """Dotted keys for an algorithm as it is written: `fedbe`, or `fedbe(samples=5, posterior="dirichlet")`.

    A dotted setting is the experiment's, for this algorithm alone: `fed-et(models.clients={"cnn"=1, "resnet8"=1})`.
    """
    match = re.fullmatch(r"([^()]+?)\s*(?:\((.*)\))?", text.strip(), re.DOTALL)
    try:
        if match is None:
            raise ValueError("parentheses that do not match")
        settings = tomllib.loads(f"given = {{ {match[2] or ''} }}")["given"]
    except ValueError as error:
        raise FedfuseError(
            f'algorithm {text!r}: {error}. Write a name, or a name with settings: fedbe(samples=5, target="logits")'
        ) from error
    own = {f"algorithm.{key}": value for key, value in settings.items() if key not in PER_ALGORITHM}
    beside = {f"{key}.{name}": v for key in PER_ALGORITHM if key in settings for name, v in dict(settings[key]).items()}
    if refused := [key for key in beside if key.startswith("run.") and key != "run.rounds"]:
        raise FedfuseError(
            f"algorithm {text!r}: {refused[0]} is the same for all algorithms; of run only rounds is not"
        )
    return {"algorithm.name": match[1], **own, **beside}
