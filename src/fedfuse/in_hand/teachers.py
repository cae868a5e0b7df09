"""Teachers of any kind as nets: modules, transformers' models, fitted scikit-learn classifiers, functions."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedfuse.models.file import Loaded
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


def each_teacher(models: Any) -> Iterator[Teacher]:
    """Yield the teachers: of one model alone, or of an iterable of models, read one at a time."""
    alone = isinstance(models, nn.Module | Loaded) and not isinstance(models, nn.ModuleList)
    if alone or hasattr(models, "predict_proba") or not isinstance(models, Iterable) or isinstance(models, str):
        models = [models]
    for number, model in enumerate(models, 1):
        yield as_teacher(model, f"teacher {number}")


def as_teacher(model: Any, title: str) -> Teacher:
    if isinstance(model, Teacher):
        return model
    if isinstance(model, Loaded):
        return Teacher(title, model.net, model.labels)
    if isinstance(model, nn.Module):
        return Teacher(title, model, labels_of(model))
    if hasattr(model, "predict_proba"):
        return _estimator(model, title)
    if hasattr(model, "predict") and hasattr(model, "fit"):
        raise FedfuseError(f"{title}, a {type(model).__name__}, has no predict_proba: use a classifier that has one")
    if callable(model) and not isinstance(model, type):
        return Teacher(title, _Function(model))
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


def _estimator(model: Any, title: str) -> Teacher:
    classes = getattr(model, "classes_", None)
    if classes is None:
        raise FedfuseError(f"{title}, a {type(model).__name__}, is not fitted: call its fit first")
    net = _Estimator(model.predict_proba)
    if all(isinstance(one, numbers.Integral) for one in classes):
        return Teacher(title, net, numbers=tuple(map(int, classes)))
    return Teacher(title, net, tuple(map(str, classes)))


class _Estimator(nn.Module):
    """log p of a scikit-learn classifier, on flat inputs."""

    def __init__(self, predict_proba: Callable[[Any], Any]) -> None:
        super().__init__()
        self.predict_proba = predict_proba

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.predict_proba(x.flatten(1).cpu().numpy())).float().clamp(min=TINY).log()


class _Function(nn.Module):
    """A function of a batch."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        return self.function(*inputs, **keywords)


def class_names(labels: Sequence[str] | None, student: nn.Module) -> Names | None:
    """Return the names of the student's classes: as given, or else from its configuration."""
    if labels is None:
        return labels_of(student)
    names = tuple(map(str, labels))
    if len(set(names)) != len(names):
        raise FedfuseError("labels holds a name twice: give each class one name")
    return names
