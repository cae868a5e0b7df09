"""What a sweep tries: for each key of an experiment a range of numbers, or a choice of values."""

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
# The key of a section that names its function: when it changes, the other keys of its section start anew.
NAMES = ("name", "source", "scheme", "kind")


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included. Two whole ends mean whole numbers; `log` is even over magnitudes."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise FedfuseError(f"{self}: an end of a range is a finite number")
        if self.low >= self.high:
            raise FedfuseError(f"{self}: the low end comes first, and the high end is above it")
        if self.log and self.low <= 0:
            raise FedfuseError(f"{self}: a range on a log scale begins above 0; leave :log out, or raise the low end")

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def probes(self) -> tuple[float, ...]:
        """The values by which to find out whether an experiment takes this parameter."""
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
            raise FedfuseError(f"{self}: one value is no choice; give several, or fix it with --set")
        if twice := [text for i, text in enumerate(self.texts) if text in self.texts[:i]]:
            raise FedfuseError(f"{self}: {twice[0]} is given twice; give each value once")

    @property
    def texts(self) -> tuple[str, ...]:
        """The values as text: unlike 1, 1.0 and true, no two of these are equal."""
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
    """From the command line: `local.lr=0.01..1:log`, `algorithm.steps=100,500`."""
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
    found = RANGE.fullmatch(text)
    ends = [] if found is None else [_number(found["low"]), _number(found["high"])]
    if found is None or None in ends:
        raise FedfuseError("a range has two numbers as its ends, as in 0.01..1 or 1e-4..0.1:log")
    if found["how"] not in (None, "log"):
        raise FedfuseError(f"a range may end with :log, not with :{found['how']}")
    low, high = (end for end in ends if end is not None)
    return Range(low, high, log=found["how"] == "log")


def _number(text: str) -> float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def in_order(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Sections before what is in them, and the names of functions before their settings, which they would drop."""
    return dict(sorted(settings.items(), key=lambda item: (item[0].count("."), item[0].split(".")[-1] not in NAMES)))


def probes(space: Space) -> Iterator[dict[str, Any]]:
    """Settings that try every choice and both ends of every range, one key at a time."""
    first = {key: parameter.probes[0] for key, parameter in space.items()}
    yield in_order(first)
    for key, parameter in space.items():
        yield from (in_order({**first, key: value}) for value in parameter.probes[1:])


def check_keys(keys: Sequence[str]) -> None:
    """A sweep compares what was measured on the same data. Nothing that it tries may change that data."""
    if not keys:
        raise FedfuseError(f"a sweep needs a parameter to search: {HOW} with --param")
    for key in keys:
        section = key.split(".")
        if section[0] == "data" and section[1:2] != ["pool"]:
            raise FedfuseError(
                f"{key}: trials are compared on the same validation data, which this would change; "
                "fix it with --set, and sweep each value into a directory of its own (--out)"
            )
        if key in ("run.seed", "run", "name", "provenance"):
            raise FedfuseError(f"{key} is no parameter to choose: leave it out; --seeds takes the mean over seeds")
