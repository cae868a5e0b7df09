"""The search space of a sweep: for each key of an experiment, a range of numbers or a choice of values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedfuse.config.values import format_value, parse_values
from fedfuse.types import FedfuseError

HOW = "write KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=a,b,c"
RANGE = re.compile(r"(?P<low>[^.,:]*(?:\.[^.,:]+)?)\.\.(?P<high>[^,:]+)(?::(?P<how>.*))?")
# Keys that name the function of their section: changing one drops the other keys of the section.
NAMES = ("name", "source", "scheme", "kind")


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, inclusive; integers if both ends are. `log` is uniform on a log scale."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise FedfuseError(f"{self}: both ends of a range must be finite")
        if self.low >= self.high:
            raise FedfuseError(f"{self}: the low end must be less than the high end")
        if self.log and self.low <= 0:
            raise FedfuseError(f"{self}: a range on a log scale must start above 0; remove :log, or raise the low end")

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def probes(self) -> tuple[float, ...]:
        """The values with which to check that an experiment accepts this parameter."""
        return (self.low, self.high)

    def facts(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "log": self.log}

    def __str__(self) -> str:
        return f"{self.low}..{self.high}{':log' if self.log else ''}"


@dataclass(frozen=True)
class Choice:
    """One of several values."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(self.values) < 2:
            raise FedfuseError(f"{self}: a choice needs two or more values; add some, or fix this one with --set")
        if duplicates := [text for i, text in enumerate(self.texts) if text in self.texts[:i]]:
            raise FedfuseError(f"{self}: {duplicates[0]} is given twice; give each value once")

    @property
    def texts(self) -> tuple[str, ...]:
        """The values as text. Distinct values have distinct texts, although 1, 1.0 and true are equal in Python."""
        return tuple(map(format_value, self.values))

    @property
    def probes(self) -> tuple[Any, ...]:
        return self.values

    def facts(self) -> dict[str, Any]:
        return {"values": list(self.values)}

    def __str__(self) -> str:
        return ",".join(self.texts)


Parameter = Range | Choice
Space = Mapping[str, Parameter]


def parse_space(pairs: Iterable[str]) -> dict[str, Parameter]:
    """Parse the `--param` options of the command line: `local.lr=0.01..1:log`, `algorithm.steps=100,500`."""
    space: dict[str, Parameter] = {}
    for pair in pairs:
        key, equals, text = (part.strip() for part in pair.partition("="))
        if not (key and equals and text):
            raise FedfuseError(f"--param {pair}: {HOW}")
        if key in space:
            raise FedfuseError(f"--param {pair}: {key} is given twice; put all its values into one --param")
        space[key] = parse_parameter(key, text)
    return space


def parse_parameter(key: str, text: str) -> Parameter:
    try:
        if ".." in text and "," not in text:
            return _range(text)
        return Choice(tuple(parse_values(text)))
    except FedfuseError as error:
        raise FedfuseError(f"{key}={text}: {error}") from error


def from_facts(facts: Mapping[str, Any]) -> Parameter:
    """The inverse of `facts`."""
    return Choice(tuple(facts["values"])) if "values" in facts else Range(**facts)


def _range(text: str) -> Range:
    match = RANGE.fullmatch(text)
    ends = [] if match is None else [_number(match["low"]), _number(match["high"])]
    if match is None or None in ends:
        raise FedfuseError("both ends of a range must be numbers, as in 0.01..1 or 1e-4..0.1:log")
    if match["how"] not in (None, "log"):
        raise FedfuseError(f"a range may end with :log, not with :{match['how']}")
    low, high = (end for end in ends if end is not None)
    return Range(low, high, log=match["how"] == "log")


def _number(text: str) -> float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def in_order(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Sort sections before their keys, and names of functions before their settings, which a new name would drop."""
    return dict(sorted(settings.items(), key=lambda item: (item[0].count("."), item[0].split(".")[-1] not in NAMES)))


def probes(space: Space) -> Iterator[dict[str, Any]]:
    """Yield settings that try every choice and both ends of every range, one key at a time."""
    first = {key: parameter.probes[0] for key, parameter in space.items()}
    yield in_order(first)
    for key, parameter in space.items():
        yield from (in_order({**first, key: value}) for value in parameter.probes[1:])


def check_keys(keys: Sequence[str]) -> None:
    """Raise an error for a key that a sweep cannot search: trials are compared on the same data and seeds."""
    if not keys:
        raise FedfuseError(f"a sweep needs a parameter to search: {HOW} with --param")
    for key in keys:
        section = key.split(".")
        if section[0] == "data" and section[1:2] != ["pool"]:
            raise FedfuseError(
                f"{key}: trials are compared on the same validation data, which this would change; "
                "fix it with --set, and run one sweep per value, each with its own --out"
            )
        if key in ("run.seed", "run", "name", "provenance"):
            raise FedfuseError(f"{key} cannot be searched: remove it; use --seeds for the mean over seeds")
