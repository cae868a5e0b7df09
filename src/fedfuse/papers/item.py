"""A table or figure of a paper as a value, read from a TOML file in `items/`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, Literal

from pydantic import Field, PositiveInt, ValidationError, model_validator

from fedfuse import signature
from fedfuse.config.named import ConfigError, Section
from fedfuse.types import FedfuseError

Paper = Literal["FedDF", "FedBE", "Fed-ET"]
ScaleName = Literal["small", "medium", "full"]
SCALES: tuple[ScaleName, ...] = ("small", "medium", "full")
Measure = Literal["mean", "final", "best", "rounds", "parameters", "number"]
Series = Literal[
    "test", "ensemble", "average", "student", "clients", "samples", "clients' calibration", "samples' calibration"
]
ONLY = "all"  # the group of an item that has no groups


class Scale(Section):
    """The experiment at one scale."""

    experiment: str = Field("", description="a built-in experiment; a measuring function may need none")
    seeds: PositiveInt = 3
    settings: dict[str, Any] = Field({}, description="dotted keys of the experiment")
    values: dict[str, Any] = Field({}, description="replace {name} in the algorithms of the rows")
    note: str = Field("", description="how the scale differs from the paper's")
    groups: tuple[str, ...] = Field((), description="the groups that are measured at this scale; by default all")
    rows: tuple[str, ...] = Field((), description="the rows that are measured at this scale; by default all")
    target: float | None = Field(None, gt=0, lt=1, description="at this scale, instead of the item's")
    targets: dict[str, float] = Field({}, description="by group, instead of that")


class Row(Section):
    """What is measured: an algorithm, and of its rounds the accuracy on test data or another series of the facts.

    Rows of an item with a measuring function need no algorithm.
    """

    name: str
    algorithm: str = ""
    series: Series = "test"
    groups: tuple[str, ...] = Field((), description="the groups that have this row; by default all")


class Group(Section):
    """A variation of the experiment. The settings of `small`, `medium` or `full` are added at that scale."""

    name: str
    settings: dict[str, Any] = Field({}, description="dotted keys of the experiment")
    small: dict[str, Any] = Field({}, description="further ones at small scale")
    values: dict[str, Any] = Field({}, description="replace {name} in the algorithms of the rows")
    medium: dict[str, Any] = Field({}, description="further ones at medium scale")
    full: dict[str, Any] = Field({}, description="further ones at full scale")
    target: float | None = Field(None, gt=0, lt=1, description="instead of the item's")

    def further(self, scale: ScaleName) -> dict[str, Any]:
        return {"small": self.small, "medium": self.medium, "full": self.full}[scale]


class Number(Section):
    """A number that the paper reports, in the unit of the item's measure; accuracies in percent."""

    row: str
    value: float
    group: str = ONLY
    deviation: float | None = None


class Claim(Section):
    """A comparison that the paper makes: the sum over the cells `higher` is above the sum over the cells `lower`.

    A cell is `row` or `group / row`. A claim whose cells name no group is checked in each of `groups`, by default all.
    With `within`, the two sums differ by at most so many points instead.
    """

    says: str
    higher: tuple[str, ...]
    lower: tuple[str, ...]
    groups: tuple[str, ...] = ()
    measure: Measure | None = Field(None, description="by default the item's")
    within: float | None = Field(None, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _single_cells(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {k: (v,) if k in ("higher", "lower") and isinstance(v, str) else v for k, v in value.items()}

    def among(self, cells: Collection[tuple[str, str]]) -> Claim | None:
        """Return the claim for the groups in which its cells are measured; None if there is none."""
        stated = [*self.higher, *self.lower]
        if any(" / " in cell for cell in stated):
            return self if all(cell in cells for cell in _cells(stated)) else None
        groups = {group for group, _ in cells if not self.groups or group in self.groups}
        measured = {group for group in groups if all((group, cell) in cells for cell in stated)}
        if not self.groups:
            return self if measured else None
        left = tuple(group for group in self.groups if group in measured)
        return self.model_copy(update={"groups": left}) if left else None


class Gains(Section):
    """What the figure of gains draws in every group: how far the rows `of` are above the row `over`."""

    of: tuple[str, ...]
    over: str


class Item(Section):
    """A table or figure of a paper."""

    title: str
    paper: Paper
    place: str = Field(description="where it is in the paper, as in Table 1")
    shows: str = Field(description="what the paper shows with it, in our words")
    measure: Measure = "best"
    target: float | None = Field(None, gt=0, lt=1, description="the accuracy that `rounds` and `parameters` count to")
    figure: Literal["rounds", "groups", "gains", "none"] = Field(
        "rounds",
        description="what is drawn: accuracy over rounds; over groups the measure, or gains; or nothing",
    )
    gains: Gains | None = Field(None, description="the differences that the figure of gains draws")
    axis: str = Field("", description="what the groups vary, for the figure over groups")
    measured_by: str | None = Field(None, description="package.module:function that measures instead of a comparison")
    trained: bool = Field(True, description="false where nothing is trained: its description then names no rounds")
    unit: str = Field("", description="what is measured, if it is not the test accuracy")
    picture: str = Field("", description="what the picture shows that the measuring function writes to picture.png")
    small: Scale | None = None
    medium: Scale | None = Field(None, description="hours on two cores, nearer to the paper's scale than small")
    full: Scale | None = None
    not_small: str = Field("", description="why it cannot run at small scale")
    rows: tuple[Row, ...] = ()
    groups: tuple[Group, ...] = (Group(name=ONLY),)
    numbers: tuple[Number, ...] = ()
    claims: tuple[Claim, ...] = ()

    @property
    def scales(self) -> dict[ScaleName, Scale]:
        """The scales that it has, from the smallest."""
        each = zip(SCALES, (self.small, self.medium, self.full), strict=True)
        return {name: scale for name, scale in each if scale is not None}

    def scale(self, name: ScaleName) -> Scale:
        scale = self.scales.get(name)
        if scale is None:
            reason = f": {self.not_small}" if name == "small" and self.not_small else ""
            raise FedfuseError(f"{self.paper}, {self.place} has no {name} scale{reason}")
        return scale

    def at(self, name: ScaleName, groups: Collection[str] = (), rows: Collection[str] = ()) -> Item:
        """Return the item with the groups, rows, numbers, claims and targets of one scale.

        groups, rows: only these; by default all of the scale.
        """
        scale = self.scale(name)
        chosen = self._known("group", groups, [group.name for group in self.groups]) or scale.groups
        measured = self._known("row", rows, [row.name for row in self.rows]) or scale.rows
        varied = tuple(
            self._with_target(group, scale) for group in self.groups if group.name in (chosen or [group.name])
        )
        item = self.model_copy(
            update={"groups": varied, "rows": tuple(row for row in self.rows if row.name in (measured or [row.name]))}
        )
        numbers = tuple(n for n in self.numbers if (n.group, n.row) in item.cells)
        claims = tuple(claim for each in self.claims if (claim := each.among(item.cells)) is not None)
        return item.model_copy(update={"numbers": numbers, "claims": claims})

    def _known(self, kind: str, names: Collection[str], known: Sequence[str]) -> Collection[str]:
        if unknown := [name for name in names if name not in known]:
            raise FedfuseError(f"{self.paper}, {self.place} has no {kind} {unknown[0]!r}: it has {'; '.join(known)}")
        return names

    def _with_target(self, group: Group, scale: Scale) -> Group:
        target = scale.targets.get(group.name, scale.target or group.target or self.target)
        return group.model_copy(update={"target": target})

    @property
    def cells(self) -> set[tuple[str, str]]:
        """The groups and rows that are measured."""
        return {(group.name, row.name) for group in self.groups for row in self.rows_of(group.name)}

    @property
    def targets(self) -> set[float]:
        """The accuracies that `rounds` and `parameters` count to."""
        return {target for group in self.groups if (target := self.target_of(group.name)) is not None}

    def target_of(self, group: str) -> float | None:
        return next(g.target for g in self.groups if g.name == group) or self.target

    def rows_of(self, group: str) -> list[Row]:
        return [row for row in self.rows if not row.groups or group in row.groups]

    def algorithm(self, row: Row, scale: ScaleName, group: Group) -> str:
        """Return the row's algorithm with the values of the scale and the group filled in."""
        values = {**self.scale(scale).values, **group.values}
        return re.sub(r"\{(\w+)\}", lambda match: str(values[match[1]]), row.algorithm)

    def settings(self, group: Group, scale: ScaleName) -> dict[str, Any]:
        """Return the dotted keys that this group sets at this scale."""
        return {**self.scale(scale).settings, **group.settings, **group.further(scale)}

    def paper_number(self, group: str, row: str) -> Number | None:
        return next((n for n in self.numbers if (n.group, n.row) == (group, row)), None)

    def checks(self) -> Iterator[tuple[Claim, str, Sequence[tuple[str, str]], Sequence[tuple[str, str]]]]:
        """Yield each claim with a group, and the cells (group, row) that it adds and subtracts."""
        for claim in self.claims:
            cells = [*claim.higher, *claim.lower]
            if any(" / " in cell for cell in cells):
                yield claim, "", _cells(claim.higher), _cells(claim.lower)
                continue
            for group in claim.groups or [g.name for g in self.groups]:
                known = {row.name for row in self.rows_of(group)}
                if claim.groups or all(cell in known for cell in cells):
                    yield claim, group, [(group, c) for c in claim.higher], [(group, c) for c in claim.lower]

    @model_validator(mode="after")
    def _consistent(self) -> Item:
        cells = self.cells
        stated = [(n.group, n.row) for n in self.numbers]
        stated += [cell for _, _, higher, lower in self.checks() for cell in (*higher, *lower)]
        if unknown := sorted(set(stated) - cells):
            raise ValueError(f"no row {unknown[0][1]!r} in group {unknown[0][0]!r}: known are {sorted(cells)}")
        checked = [claim for claim, *_ in self.checks()]
        if idle := [claim for claim in self.claims if claim not in checked]:
            raise ValueError(f"no group has every row of the claim {idle[0].says!r}")
        self._check_scales()
        if (self.figure == "gains") != (self.gains is not None):
            raise ValueError("the figure of gains needs gains, and no other figure has any")
        if self.gains is not None:
            known = {row.name for row in self.rows}
            if unnamed := [name for name in (self.gains.over, *self.gains.of) if name not in known]:
                raise ValueError(f"gains names {unnamed[0]!r}, which is no row of the item")
        if self.measured_by is None and not all(row.algorithm for row in self.rows):
            raise ValueError("a row has no algorithm: give one, or measured_by")
        if self.measure == "number" and not self.unit:
            raise ValueError("say in unit what the numbers are")
        if self.picture and self.measured_by is None:
            raise ValueError("only a measuring function writes a picture: give measured_by, or leave picture out")
        if self.small is None and not self.not_small:
            raise ValueError("give the small scale, or in not_small why there is none")
        return self

    def _check_scales(self) -> None:
        counts_to_target = {self.measure, *(c.measure for c in self.claims)} & {"rounds", "parameters"}
        groups, rows = [group.name for group in self.groups], [row.name for row in self.rows]
        for scale in self.scales.values():
            if not scale.experiment and self.measured_by is None:
                raise ValueError("a scale needs an experiment, unless a function measures the item")
            targets = [self._with_target(group, scale).target for group in self.groups]
            if counts_to_target and None in targets:
                raise ValueError("a measure of rounds or parameters needs a target")
            named = [*((g, groups) for g in (*scale.groups, *scale.targets)), *((r, rows) for r in scale.rows)]
            if unknown := [name for name, known in named if name not in known]:
                raise ValueError(f"a scale names {unknown[0]!r}, which is no group or row of the item")


def _cells(names: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [name.partition(" / ") for name in names]
    if wrong := [name for name, bar, _ in pairs if not bar]:
        raise ValueError(f"{wrong[0]!r}: give a group for every cell of a claim, as in 'group / row', or for none")
    return [(group, row) for group, _, row in pairs]


def names() -> list[str]:
    """Return the names of all items: by paper, tables before figures, in the order of their numbers."""
    files = [f.name.removesuffix(".toml") for f in (resources.files("fedfuse.papers") / "items").iterdir()]
    return sorted((name for name in files if not name.startswith("__")), key=_order)


def _order(name: str) -> tuple[int, int, int, str]:
    papers, kinds = ("feddf", "fedbe", "fed-et"), ("table", "figure")
    match = re.fullmatch(r"(feddf|fedbe|fed-et)-(table|figure)-(\d+)(.*)", name)
    if match is None:
        return len(papers), 0, 0, name
    return papers.index(match[1]), kinds.index(match[2]), int(match[3]), match[4]


def load(name: str) -> Item:
    """Read an item by its name."""
    known = names()
    if name not in known:
        hint = signature.did_you_mean(name, known)
        raise FedfuseError(f"no table or figure is called {name!r}{hint} `fedfuse papers list` lists all")
    text = (resources.files("fedfuse.papers") / "items" / f"{name}.toml").read_text(encoding="utf-8")
    try:
        return Item(**tomllib.loads(text))
    except ValidationError as error:
        raise ConfigError(ConfigError.of(error, lambda _: Item.model_fields).problems, f"{name}.toml") from error
