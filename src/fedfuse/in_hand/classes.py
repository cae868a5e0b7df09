"""Classes of teachers that name them in another order, or know only some of them.

A class that a teacher does not know gets the mean logit of the teachers that know it, so that any target works on
teachers with missing classes. The mean of logits is then, for each class, that of the teachers that know it.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from numbers import Integral

import torch
from torch import Tensor

from fedfuse.fusion.spill import SpillingRows
from fedfuse.fusion.target import RunningTarget, Target, TargetValue
from fedfuse.in_hand.teachers import Names, Teacher
from fedfuse.types import FedfuseError

Known = Sequence[int | str]


def places(teacher: Teacher, width: int, classes: int, labels: Names | None, known: Known | None) -> Tensor | None:
    """Return the student's class of each output (width,), -1 for an output to ignore; None if they are the same.

    known: the classes that the teacher knows, as stated by the caller; then these and no others count.
    """
    if known is None and teacher.numbers not in (None, tuple(range(classes))):
        known = teacher.numbers
    if known is not None:
        return _places_of_known(teacher, width, classes, labels, known)
    if teacher.labels is None or labels is None:
        if width != classes:
            raise FedfuseError(
                f"{teacher.title} gives logits for {width} classes, the student for {classes}: state the classes that "
                "it knows with knows=, or name all classes with labels="
            )
        return None
    if len(teacher.labels) != width:
        raise FedfuseError(f"{teacher.title} names {len(teacher.labels)} classes and gives {width} logits")
    if strangers := [name for name in teacher.labels if name not in labels]:
        raise FedfuseError(
            f"{teacher.title} knows a class {strangers[0]!r}, and the student's are {', '.join(labels[:10])}: rename "
            "its classes, or choose a student that has it"
        )
    if teacher.labels == labels:
        return None
    return torch.tensor([labels.index(name) for name in teacher.labels])


def _places_of_known(teacher: Teacher, width: int, classes: int, labels: Names | None, known: Known) -> Tensor:
    if isinstance(known, str | Set):
        raise FedfuseError(
            f"knows of {teacher.title} is {known!r}: give a list of classes, in the order of its outputs"
        )
    numbers = [_number(teacher, one, classes, labels) for one in known]
    if len(set(numbers)) != len(numbers) or not numbers:
        raise FedfuseError(f"knows of {teacher.title} is {list(known)}: state each of its classes once")
    if labels is not None and teacher.labels is not None and len(teacher.labels) == width:
        own = [labels.index(name) if name in labels else -1 for name in teacher.labels]  # its own names say more
        return torch.tensor([number if number in numbers else -1 for number in own])
    if width == len(numbers):
        return torch.tensor(numbers)
    if width == classes:  # an output for every class, of which some were never trained
        return torch.tensor([number if number in numbers else -1 for number in range(classes)])
    raise FedfuseError(
        f"{teacher.title} gives {width} logits, and knows states {len(numbers)} of {classes} classes: state as many as "
        "it has outputs"
    )


def _number(teacher: Teacher, one: int | str, classes: int, labels: Names | None) -> int:
    if isinstance(one, str) and labels is not None and one in labels:
        return labels.index(one)
    if isinstance(one, Integral) and not isinstance(one, bool) and 0 <= int(one) < classes:
        return int(one)
    raise FedfuseError(f"knows of {teacher.title} has {one!r}, which is no class of the student")


class CompletedTarget:
    """A running target whose teachers may know only some of the classes."""

    def __init__(self, target: Target, rows: int, classes: int) -> None:
        self._running: RunningTarget = target.start(rows, classes)
        self._classes = classes
        self._sum = torch.zeros(rows, classes)
        self._weight = torch.zeros(classes)
        self._partial: list[tuple[Tensor, float]] = []  # (C,) what each knows, and its weight
        self._logits = SpillingRows(torch.float32)

    def add(self, logits: Tensor, weight: float, outputs: Tensor | None = None) -> Tensor:
        """Add logits (N, width) whose outputs are the classes `outputs` (width,). Return them as (N, C).

        A class that the teacher does not know has -inf in the returned logits. Adding a constant to all logits of a row
        changes no probability, so rows of teachers that state their classes are shifted to mean 0: then they compare.
        """
        if outputs is None:
            self._running.add(logits, weight)
            self._sum += weight * (logits - logits.mean(1, keepdim=True))
            self._weight += weight
            return logits
        used = outputs >= 0
        own = logits[:, used]
        whole = torch.zeros(len(logits), self._classes)
        whole[:, outputs[used]] = own - own.mean(1, keepdim=True)
        known = torch.zeros(self._classes, dtype=torch.bool)
        known[outputs[used]] = True
        self._sum += weight * whole
        self._weight += weight * known
        if bool(known.all()):
            self._running.add(whole, weight)
        else:
            self._partial.append((known, weight))
            self._logits.append(whole[None])
        return torch.where(known, whole, -torch.inf)

    def value(self) -> TargetValue:
        if (unknown := (self._weight == 0).nonzero().flatten().tolist()) and self._partial:
            raise FedfuseError(f"no teacher knows class {unknown[0]}: add one that does, or leave the class out")
        for (known, weight), whole in zip(self._partial, self._logits.whole() if self._partial else (), strict=True):
            self._running.add(torch.where(known, whole, self._sum / self._weight), weight)
        self._partial.clear()
        return self._running.value()
