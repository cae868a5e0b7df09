"""`fuse`: distil several models into one, without a federation."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from fedfuse import rng, tree
from fedfuse.fusion.distillers import AdamCosine, Distiller, Validate
from fedfuse.fusion.labelling import Labelling
from fedfuse.fusion.loss import Loss, SoftCrossEntropy
from fedfuse.fusion.table import TensorPool, logits_of, reachable
from fedfuse.fusion.target import MeanLogits, Target, checked_weight
from fedfuse.predict import evaluating
from fedfuse.types import FedfuseError


@dataclass(frozen=True)
class Fused:
    """The new model, and the course of its distillation."""

    model: nn.Module
    steps: int
    losses: Tensor  # (steps,) the loss of each step's batch
    validation: tuple[tuple[int, float], ...]  # (step, accuracy); empty without validation data
    reason: str  # why it ended


def fuse(
    teachers: Iterable[nn.Module],
    student: nn.Module,
    pool: Tensor | Dataset[Any] | Iterable[Any],
    *,
    weights: Sequence[float] | None = None,
    target: Target = MeanLogits(),  # noqa: B008  frozen
    loss: Loss = SoftCrossEntropy(),  # noqa: B008
    distiller: Distiller = AdamCosine(),  # noqa: B008
    validation: tuple[Tensor, Tensor] | None = None,
    seed: int = 0,
) -> Fused:
    """Distil an ensemble of models, of any architectures, into a copy of `student`, on unlabeled data.

    teachers: nets from inputs to logits (B, C). Each is run once, in eval mode; a generator is read one net at a time.
    pool: inputs (N, ...), a Dataset of x or (x, y), or an iterable of batches of them. Labels are ignored.
    weights: one per teacher; equal by default. validation: (x, y), for early stopping.
    seed: the source of all randomness. The arguments are not changed.
    """
    inputs = TensorPool(_inputs(pool))
    steps = distiller.plan(len(inputs))
    rows = reachable(len(inputs), steps, distiller.batch_size, rng.generator(seed, "pool"))
    labelling = Labelling(target, inputs, rows)
    for number, (teacher, weight) in enumerate(_weighted(teachers, weights), 1):
        name = f"teacher {number}"
        labelling.add(labelling.logits(teacher, name), name, weight)
    labels = loss(labelling.value())
    model = copy.deepcopy(student)
    model.zero_grad(set_to_none=True)
    _check_width(model, inputs, rows, labels.probs.shape[1])
    with evaluating(model):  # restores the student's modes after the distiller
        result = distiller(
            model, inputs, labels, _validate(validation), lambda what: rng.generator(seed, "distil", what)
        )
    model.zero_grad(set_to_none=True)
    return Fused(model, result.steps, result.losses, result.validation, result.reason)


def _weighted(teachers: Iterable[nn.Module], weights: Sequence[float] | None) -> Iterator[tuple[nn.Module, float]]:
    for weight in weights or ():
        checked_weight(weight)
    number = 0
    for number, teacher in enumerate(teachers, 1):
        if weights is not None and number > len(weights):
            raise FedfuseError(f"{len(weights)} weights were given for more teachers: give one each")
        yield teacher, 1.0 if weights is None else float(weights[number - 1])
    if weights is not None and number < len(weights):
        raise FedfuseError(f"{len(weights)} weights were given for {number} teachers: give one each")


def _inputs(pool: Tensor | Dataset[Any] | Iterable[Any]) -> Tensor:
    """Return the pool as one tensor (N, ...)."""
    if isinstance(pool, Tensor):
        x = pool
    else:
        parts = [torch.as_tensor(_without_label(part)) for part in _parts(pool)]
        if not parts:
            raise FedfuseError("the pool is empty: give unlabeled inputs to distil on")
        x = torch.stack(parts) if isinstance(pool, Dataset) else torch.cat(parts)
    if x.dtype == torch.uint8:
        raise FedfuseError("the pool holds bytes: give it as the models take it, as normalised floats")
    if x.is_floating_point() and not tree.all_finite(x):
        raise FedfuseError("the pool holds values that are not finite: remove them first")
    return x.detach()


def _parts(pool: Dataset[Any] | Iterable[Any]) -> Iterable[Any]:
    """Return the examples of a dataset, or the batches of any other iterable."""
    if isinstance(pool, Dataset) and isinstance(pool, Sized):
        return (pool[i] for i in range(len(pool)))
    assert isinstance(pool, Iterable)
    return pool


def _without_label(item: Any) -> Any:
    return item[0] if isinstance(item, tuple | list) else item


def _check_width(model: nn.Module, pool: TensorPool, rows: Tensor, classes: int) -> None:
    width = logits_of(model, pool, rows[:2], "the student").shape[1]
    if width != classes:
        raise FedfuseError(
            f"the student gives logits for {width} classes, the teachers for {classes}: change its last layer"
        )


def _validate(validation: tuple[Tensor, Tensor] | None) -> Validate | None:
    if validation is None:
        return None
    x, y = validation
    if len(x) == 0 or len(x) != len(y):
        raise FedfuseError(f"validation has {len(x)} inputs and {len(y)} labels: give as many of both, or none")
    data = TensorPool(x)

    def accuracy(net: nn.Module) -> float:
        logits = logits_of(net, data, torch.arange(len(x)), "the student")
        return float((logits.argmax(1) == y.to("cpu")).double().mean())

    return accuracy
