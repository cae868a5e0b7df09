"""Sections that name a function, and the errors for invalid sections."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from fedfuse import signature
from fedfuse.types import FedfuseError


@dataclass(frozen=True)
class Problem:
    """An invalid setting: its key, its value, and what is wrong with it."""

    key: str
    value: Any
    right: str

    def __str__(self) -> str:
        whole = isinstance(self.value, Mapping) and not self.right.startswith("is not a known key")
        return f"{self.key}: {self.right}" if whole else f"{self.key} = {self.value!r}: {self.right}"


class ConfigError(FedfuseError):
    """An experiment with invalid settings."""

    def __init__(self, problems: Sequence[Problem], file: str | None = None) -> None:
        self.problems, self.file = problems, file
        super().__init__("\n".join(f"{file}: {p}" if file else str(p) for p in problems))

    @staticmethod
    def of(error: ValidationError, known: Callable[[Sequence[str]], Iterable[str]], prefix: str = "") -> ConfigError:
        """Convert pydantic's errors. `known` returns the keys that are allowed at a place."""
        problems: dict[str, Problem] = {}
        for one in _without_other_branches([dict(e) for e in error.errors(include_url=False)]):
            problem = _problem(one, known, prefix)
            if (before := problems.get(problem.key)) is not None:  # the branches of a union: each says what it takes
                right = f"{before.right}, or {problem.right.removeprefix('input should be ')}"
                problem = Problem(problem.key, problem.value, right)
            problems[problem.key] = problem
        return ConfigError(list(problems.values()))


# How pydantic labels the branches of a union within the place of an error.
_BRANCH = re.compile(r"(str|int|float|bool|none|[a-z]+\[.*\]|(constrained|function|lax|json|literal)-.*)")


def _without_other_branches(errors: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where one branch of a union came further than the others, return its errors only."""
    further = {_before_branch(e) for e in errors if not _is_branch(e)} - {None}
    return [e for e in errors if _before_branch(e) not in further or not _is_branch(e)]


def _is_branch(error: Mapping[str, Any]) -> bool:
    """Return whether this error is of a whole branch of a union, and of nothing within it."""
    return bool(error["loc"]) and _BRANCH.fullmatch(str(error["loc"][-1])) is not None


def _before_branch(error: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return the place of the union that this error is a branch of."""
    places = [i for i, part in enumerate(error["loc"]) if _BRANCH.fullmatch(str(part))]
    return error["loc"][: places[0]] if places else None


def _problem(error: dict[str, Any], known: Callable[[Sequence[str]], Iterable[str]], prefix: str) -> Problem:
    place = [str(part) for part in error["loc"] if _BRANCH.fullmatch(str(part)) is None]
    key = ".".join(filter(None, [prefix, *place])) or "experiment"
    if error["type"] == "extra_forbidden":
        keys = sorted(known(place[:-1]))
        right = f"is not a known key{signature.did_you_mean(place[-1], keys)} Known here: {', '.join(keys) or 'none'}"
        return Problem(key, error["input"], right)
    if error["type"] == "missing":
        return Problem(key, None, "is required and was not given")
    message = error["msg"].removeprefix("Value error, ").replace("valid dictionary", "table")
    message = re.sub(r" or instance of \w+$", "", message)
    return Problem(key, error["input"], message[0].lower() + message[1:])


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    _only_numbers = signature.ONLY_NUMBERS


class NamedSection(BaseModel):
    """A section that names a function. All keys but the section's own fields are that function's settings."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)
    _only_numbers = signature.ONLY_NUMBERS
    key: ClassVar[str]
    what: ClassVar[str]
    catalogue: ClassVar[Mapping[str, signature.Function]]

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return cls.from_text(value) if isinstance(value, str) else cls.from_value(value)

    @classmethod
    def from_text(cls, text: str) -> dict[str, Any]:
        """Return the section's keys, given as text: by default the name of its function."""
        return {cls.key: text}

    @classmethod
    def from_value(cls, value: Any) -> Any:
        """Convert a Python value given for the section to the section's keys. By default, return it unchanged."""
        return value

    def function(self) -> signature.Function:
        return signature.resolve(getattr(self, self.key), self.catalogue, self.what)

    @property
    def settings(self) -> dict[str, Any]:
        """The function's arguments."""
        return dict(self.__pydantic_extra__ or {})

    def stated_settings(self) -> dict[str, Any]:
        """Return the settings as a file states them: "none" for a None that is not the default."""
        function = self.function()
        defaults = {p.name: signature.default_of(function, p) for p in signature.settings_of(function)}
        return {
            key: signature.NONE if value is None and defaults.get(key) is not None else value
            for key, value in self.settings.items()
        }

    def complete(self, place: str) -> list[Problem]:
        """Check the settings against the function's signature and fill in its defaults, here and in inner sections.

        A resolved experiment thus states every setting. Return the problems, by full key.
        """
        assert self.__pydantic_extra__ is not None
        try:
            function = self.function()
        except FedfuseError as error:
            return [Problem(f"{place}.{self.key}", getattr(self, self.key), str(error))]
        keys = [p.name for p in signature.settings_of(function)]
        try:
            arguments = self.settings_schema().model_validate(self.settings)
        except ValidationError as error:
            return list(ConfigError.of(error, lambda _: [*type(self).model_fields, *keys], place).problems)
        # Copy, since default sections are shared and are completed in place below.
        self.__pydantic_extra__.update({key: deepcopy(getattr(arguments, key)) for key in keys})
        problems = self.pass_on(place)
        fields = {field: getattr(self, field) for field in type(self).model_fields}
        for key, value in {**fields, **self.settings}.items():
            for number, inner in enumerate(value if isinstance(value, tuple) else (value,)):
                if isinstance(inner, NamedSection):
                    where = f"{place}.{key}" + (f".{number}" if isinstance(value, tuple) else "")
                    problems += inner.complete(where)
        return problems

    def settings_schema(self) -> type[BaseModel]:
        """Return a pydantic model of the function's settings as they appear in a file."""
        return signature.schema(self.function())

    def pass_on(self, place: str) -> list[Problem]:
        """Move settings that belong to inner sections into them. Return the problems."""
        return []
