"""How to read a table: which columns are the inputs, the label and the users, and which splits there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reading:
    """How to read a table. Columns that are None are chosen by type if only one fits."""

    image: str | None = None
    label: str | None = None
    config: str | None = None
    size: int | None = None
    columns: tuple[str, ...] | None = None  # None: every other integer, string or class column
    train: str = "train"
    test: str | None = None
    holdout: float = 0.2  # of the training split, for data without a test split
    revision: str | None = None
    text: str | tuple[str, ...] | None = None  # one column, or two for pairs of texts
    classes: tuple[tuple[int, str], ...] = ()  # names of labels by value; examples with other labels are left out
    features: tuple[str, ...] | None = None  # of numbers and categories; None: every other column
    users: tuple[str, ...] = ()  # columns by which the experiment splits the data: features only if they are named

    def key(self) -> dict[str, Any]:
        """Return the settings that a cache entry depends on."""
        newer = {"features": None, "users": ()}  # left out while unset, so that older entries stay valid
        return {name: value for name, value in vars(self).items() if name not in newer or value != newer[name]}
