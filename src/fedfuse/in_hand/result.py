"""The result of `fuse`: the new model, and how good it, its teachers and their ensemble are."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from fedfuse import tree
from fedfuse.evaluate import accuracy
from fedfuse.fusion.labelling import SoftLabels
from fedfuse.fusion.table import TensorPool, logits_of
from fedfuse.fusion.target import Target
from fedfuse.in_hand.classes import CompletedTarget
from fedfuse.in_hand.page import Row, write_page
from fedfuse.in_hand.teachers import Names, Teacher, logits_of_model
from fedfuse.notebook import curve, table
from fedfuse.types import Tensors


@dataclass(frozen=True)
class Quality:
    """How good a model is. Both numbers are shares of rows."""

    name: str
    accuracy: float | None  # on validation data, if there is any
    agreement: float | None = None  # with the ensemble's class on the pool


@dataclass(frozen=True, repr=False)
class Fused:
    """The new model, the course of its distillation, and the quality of all models."""

    model: nn.Module
    steps: int
    losses: Tensor  # (steps,) the loss of each step's batch
    validation: tuple[tuple[int, float], ...]  # (step, accuracy); empty without validation data
    reason: str  # why it ended
    labels: Names | None = None
    teachers: tuple[Quality, ...] = ()
    average: Quality | None = (
        None  # of the teachers' weights, if all have one architecture and validation data is given
    )
    ensemble: Quality | None = None
    student: Quality | None = None

    def qualities(self) -> list[Quality]:
        """Return the teachers, the average of their weights, the ensemble and the student, as far as they are known."""
        return [q for q in (*self.teachers, self.average, self.ensemble, self.student) if q is not None]

    def __repr__(self) -> str:
        return f"Fused({type(self.model).__name__}, {self.steps} steps, {self.reason}{_of(self.student)})"

    def _repr_html_(self) -> str:
        rows = [(q.name, _percent(q.accuracy), _percent(q.agreement)) for q in self.qualities()]
        header = ("model", "validation accuracy %", "agreement with the ensemble %")
        return table(f"{type(self.model).__name__}: {self.steps} steps, {self.reason}", header, rows) + curve(
            {"": [accuracy for _, accuracy in self.validation]}, "validation accuracy during the distillation"
        )

    def report(self, out: str | Path = "fuse.html") -> Path:
        """Write a page with the quality of all models and the course of the distillation."""
        rows = [Row(q.name, q.accuracy, q.agreement) for q in self.qualities()]
        return write_page(Path(out), rows, self.losses.tolist(), self.validation, f"{self.steps} steps, {self.reason}")


def _of(student: Quality | None) -> str:
    known = {} if student is None else {"accuracy": student.accuracy, "agreement": student.agreement}
    return "".join(f", {name} {share:.4f}" for name, share in known.items() if share is not None)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f}"


@dataclass(frozen=True)
class _Qualities:
    teachers: tuple[Quality, ...]
    average: Quality | None
    ensemble: Quality
    student: Quality


class Judge:
    """Measures each model while it is at hand: accuracy on validation data, agreement with the ensemble without."""

    def __init__(self, held_out: tuple[TensorPool, Tensor] | None, classes: int, target: Target) -> None:
        self._held_out = held_out
        self._teachers: list[tuple[str, float | None, Tensor]] = []  # name, accuracy, predictions (n,) on the pool
        self._ensemble = None if held_out is None else CompletedTarget(target, len(held_out[1]), classes)
        self._mean = WeightAverage()

    def teacher(self, teacher: Teacher, net: nn.Module, logits: Tensor, outputs: Tensor | None, weight: float) -> None:
        """Measure a teacher, given its logits (n, C) on the pool."""
        self._teachers.append(
            (teacher.title, self._accuracy(teacher.title, net, outputs, weight), logits.argmax(1).to(torch.int32))
        )
        if self._held_out is not None:
            self._mean.add(net, weight, aligned=outputs is None)

    def _accuracy(self, name: str, net: nn.Module, outputs: Tensor | None, weight: float) -> float | None:
        if self._held_out is None or self._ensemble is None:
            return None
        data, y = self._held_out
        logits = logits_of_model(net, data, torch.arange(len(y)), name, "validation data")
        return accuracy(self._ensemble.add(logits, weight, outputs), y)

    def accuracy_of(self, model: nn.Module) -> Callable[[nn.Module], float] | None:
        """Return a function from a net to its accuracy on validation data."""
        if self._held_out is None:
            return None
        data, y = self._held_out
        return lambda net: accuracy(logits_of(net, data, torch.arange(len(y)), "the student"), y)

    def value(self, model: nn.Module, pool: TensorPool, labels: SoftLabels) -> _Qualities:
        ensemble = labels.probs.argmax(1)
        student = logits_of(model, pool, labels.rows, "the student").argmax(1)
        measure = self.accuracy_of(model)
        of_ensemble = None
        if self._held_out is not None and self._ensemble is not None:
            of_ensemble = accuracy(self._ensemble.value().probs, self._held_out[1])
        teachers = tuple(
            Quality(name, share, _share(prediction == ensemble)) for name, share, prediction in self._teachers
        )
        average = self._mean.value() if measure is not None and len(teachers) > 1 else None
        return _Qualities(
            teachers,
            None if average is None or measure is None else Quality("average of weights", measure(average)),
            Quality("ensemble", of_ensemble),
            Quality("student", None if measure is None else measure(model), _share(student == ensemble)),
        )


def _share(hits: Tensor) -> float:
    return float(hits.double().mean())


class WeightAverage:
    """The mean of the teachers' weights, as long as all have one architecture."""

    def __init__(self) -> None:
        self._net: nn.Module | None = None
        self._sum: dict[str, Tensor] = {}
        self._weight, self._possible = 0.0, True

    def add(self, net: nn.Module, weight: float, *, aligned: bool) -> None:
        state = {name: t.detach().cpu() for name, t in net.state_dict().items()}
        if self._net is None:
            self._possible = aligned and bool(state)
            self._net = net
            self._sum = tree.zeros_like({n: t.double() for n, t in state.items()}) if self._possible else {}
        self._possible = self._possible and aligned and type(net) is type(self._net) and _fits(state, self._sum)
        if self._possible:
            self._sum = {name: self._sum[name] + weight * t.double() for name, t in state.items()}
            self._weight += weight

    def value(self) -> nn.Module | None:
        if not self._possible or self._net is None or not self._weight:
            return None
        net = copy.deepcopy(self._net)
        for name, tensor in net.state_dict().items():
            tensor.copy_(self._sum[name] / self._weight)
        return net


def _fits(state: Tensors, other: Tensors) -> bool:
    return state.keys() == other.keys() and all(t.shape == other[name].shape for name, t in state.items())
