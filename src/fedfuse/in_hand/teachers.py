"""Teachers of any kind as nets: modules, transformers' models, fitted scikit-learn classifiers, functions."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedfuse.fusion.table import logits_of
from fedfuse.in_hand.frames import Columns, as_frame, places_of
from fedfuse.models.file import Loaded
from fedfuse.predict import Pool
from fedfuse.types import FedfuseError

TINY = 1e-6  # the least probability of a scikit-learn classifier: the logarithm of 0 is not finite
Names = tuple[str, ...]


@dataclass(frozen=True)
class Teacher:
    """A net from inputs to logits, and the names or numbers of its outputs' classes where they are known."""

    title: str
    net: nn.Module
    labels: Names | None = None
    numbers: tuple[int, ...] | None = None


def each_teacher(models: Any, columns: Columns | None = None) -> Iterator[Teacher]:
    """Yield the teachers: of one model alone, or of an iterable of models, read one at a time.

    columns: those of the pool, if it is a data frame.
    """
    alone = isinstance(models, nn.Module | Loaded) and not isinstance(models, nn.ModuleList)
    if alone or hasattr(models, "predict_proba") or not isinstance(models, Iterable) or isinstance(models, str):
        models = [models]
    for number, model in enumerate(models, 1):
        yield as_teacher(model, f"teacher {number}", columns)


def as_teacher(model: Any, title: str, columns: Columns | None = None) -> Teacher:
    if isinstance(model, Teacher):
        return model
    if isinstance(model, Loaded):
        return Teacher(title, model.net, model.labels)
    if isinstance(model, nn.Module):
        return Teacher(title, model, labels_of(model))
    if hasattr(model, "predict_proba"):
        return _estimator(model, title, columns)
    if hasattr(model, "predict") and hasattr(model, "fit"):
        raise FedfuseError(f"{title}, a {type(model).__name__}, has no predict_proba: use a classifier that has one")
    if callable(model) and not isinstance(model, type):
        return Teacher(title, _Function(model, title))
    raise FedfuseError(
        f"{title} is a {type(model).__name__}: give a torch.nn.Module, a fitted scikit-learn classifier, or a function "
        "from inputs to logits"
    )


def labels_of(net: nn.Module) -> Names | None:
    """Return the names of a net's classes, if its configuration has them (transformers' `id2label`)."""
    names = getattr(getattr(net, "config", None), "id2label", None)
    if not isinstance(names, dict) or not names:
        return None
    labels = tuple(str(names[number]) for number in sorted(names))
    return None if labels == tuple(f"LABEL_{i}" for i in range(len(labels))) else labels  # transformers' defaults


def _estimator(model: Any, title: str, columns: Columns | None) -> Teacher:
    classes = getattr(model, "classes_", None)
    if classes is None:
        raise FedfuseError(f"{title}, a {type(model).__name__}, is not fitted: call its fit first")
    features = getattr(model, "feature_names_in_", None)  # of one that was fitted on a data frame
    net = _Estimator(model.predict_proba, title, None if features is None else tuple(features), columns)
    if all(isinstance(one, numbers.Integral) for one in classes):
        return Teacher(title, net, numbers=tuple(map(int, classes)))
    return Teacher(title, net, tuple(map(str, classes)))


class _Estimator(nn.Module):
    """log p of a scikit-learn classifier, on flat inputs. One that was fitted on a frame finds its columns by name."""

    def __init__(
        self, predict_proba: Callable[[Any], Any], title: str, features: Columns | None, columns: Columns | None
    ) -> None:
        super().__init__()
        self.predict_proba, self.features = predict_proba, features
        by_name = features is not None and columns is not None
        self.order = places_of(features, columns, f"the pool of {title}") if by_name else None  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(1).cpu().numpy()
        rows = rows if self.order is None else rows[:, self.order]
        known = rows if self.features is None else as_frame(rows, self.features)
        return torch.as_tensor(self.predict_proba(known)).float().clamp(min=TINY).log()


class _Function(nn.Module):
    """A function of a batch."""

    def __init__(self, function: Callable[..., Any], title: str) -> None:
        super().__init__()
        self.function, self.title = function, title

    def forward(self, *inputs: Any, **named: Any) -> Any:
        output = self.function(*inputs, **named)
        if isinstance(output, np.ndarray):
            return torch.as_tensor(output)
        if isinstance(output, Tensor | Mapping) or hasattr(output, "logits"):
            return output
        raise FedfuseError(
            f"{self.title} returned a {type(output).__name__}: a function returns logits (B, C), or an object with "
            ".logits"
        )


class InOwnPrecision(nn.Module):
    """A net whose parameters are of another precision than its inputs."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, *inputs: Any, **named: Any) -> Any:
        dtype = next(p.dtype for p in self.net.parameters() if p.is_floating_point())

        def cast(value: Any) -> Any:
            return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

        return self.net(*map(cast, inputs), **{name: cast(value) for name, value in named.items()})


def logits_of_model(net: nn.Module, pool: Pool, rows: Tensor, title: str, what: str = "the pool") -> Tensor:
    """Return the logits (n, C) of a user's model. An error of its own becomes one that names it, with the remedy."""
    first = next((p for p in net.parameters() if p.is_floating_point()), None)
    try:
        own = net if first is None or first.dtype is torch.float32 else InOwnPrecision(net)
        return logits_of(own, pool, rows, title)
    except (FedfuseError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a net may raise anything on inputs that it cannot take
        reason = str(error).strip().partition("\n")[0]
        raise FedfuseError(
            f"{title} fails on {what} ({type(error).__name__}: {reason}): give inputs of the shape, type and names "
            "that it takes, or wrap it in a function that converts them"
        ) from error


def class_names(labels: Sequence[str] | None, student: nn.Module) -> Names | None:
    """Return the names of the student's classes: as given, or else from its configuration."""
    if labels is None:
        return labels_of(student)
    names = tuple(map(str, labels))
    if len(set(names)) != len(names):
        raise FedfuseError("labels holds a name twice: give each class one name")
    return names
