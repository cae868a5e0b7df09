"""Refuse data that cannot be learned, when it is loaded. The error names the row or the label, and the remedy."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedfuse.data.examples import Examples
from fedfuse.data.sources.source import Source
from fedfuse.types import FedfuseError

CHUNK = 4096  # rows looked at at once


def check_source(source: Source, name: str) -> Source:
    """Return the source, if a model can be trained and tested on it."""
    for split, examples in (("training", source.train), ("test", source.test)):
        check_parts(examples, split, name)
        _check_inputs(examples, split, name)
        _check_labels(examples, split, name)
    train, test = (torch.bincount(e.y, minlength=len(source.labels)) for e in (source.train, source.test))
    if int((train > 0).sum()) == 1:
        label = source.labels[int(train.argmax())]
        raise FedfuseError(
            f"{name}: all {len(source.train)} training examples have the label {label!r}: give others too"
        )
    if unseen := ((test > 0) & (train == 0)).nonzero().flatten().tolist():
        label = source.labels[unseen[0]]
        raise FedfuseError(
            f"{name}: {int(test[unseen[0]])} test examples have the label {label!r}, and no training example has it: "
            "choose other splits, or leave them out"
        )
    return source


def check_unlabeled(source: Source, name: str) -> Source:
    """Return the source, if its training inputs can be used without their labels."""
    check_parts(source.train, "training", name)
    _check_inputs(source.train, "training", name)
    return source


def check_parts(examples: Examples, split: str, name: str) -> None:
    """Refuse parts that are no tensors of one row per example, as a user's own Source may have them."""
    inputs = examples.x if isinstance(examples.x, Mapping) else {"x": examples.x}
    y = examples.y
    for part, values in {"y": y, **inputs, **examples.columns}.items():
        what = f"{name}: {part} of the {split} data"
        if not isinstance(values, Tensor) or values.layout != torch.strided or values.device.type != "cpu":
            raise FedfuseError(f"{what} is a {type(values).__name__}: give a dense tensor in memory")
        if values.requires_grad or values.is_complex():
            problem = "has a gradient" if values.requires_grad else "holds complex numbers"
            raise FedfuseError(f"{what} {problem}: give plain real numbers")
        if values.dim() == 0 or len(values) != len(y):
            raise FedfuseError(f"{what} is {tuple(values.shape)} for labels of {tuple(y.shape)}: give a row per label")
    if y.dtype != torch.int64 or y.dim() != 1:
        raise FedfuseError(
            f"{name}: y of the {split} data is {tuple(y.shape)} {y.dtype}: give one int64 per example, (N,)"
        )


def _check_inputs(examples: Examples, split: str, name: str) -> None:
    if len(examples) == 0:
        remedy = "give some, or name a split or a holdout" if split == "test" else "is it the right file or split?"
        raise FedfuseError(f"{name} has no {split} examples: {remedy}")
    for tensor in [examples.x] if isinstance(examples.x, Tensor) else examples.x.values():
        if (row := first_not_finite(tensor)) is not None:
            raise FedfuseError(f"{name}: {split} example {row} holds NaN or infinity: remove or replace such values")


def _check_labels(examples: Examples, split: str, name: str) -> None:
    low, high = int(examples.y.min()), int(examples.y.max())
    if low < 0 or high >= examples.classes:
        wrong = low if low < 0 else high
        raise FedfuseError(
            f"{name}: a {split} example has the label {wrong}: number the classes from 0 to {examples.classes - 1}"
        )


def first_not_finite(x: Tensor) -> int | None:
    """Return the number of the first row (from 0) of x (N, ...) that holds NaN or infinity."""
    if not x.is_floating_point():
        return None
    for start in range(0, len(x), CHUNK):
        rows = torch.isfinite(x[start : start + CHUNK]).flatten(1).all(1)
        if not bool(rows.all()):
            return start + int(rows.logical_not().nonzero()[0])
    return None
