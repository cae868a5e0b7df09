"""`fuse`: distil several models into one, without a federation."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fedfuse import rng
from fedfuse.compute import devices
from fedfuse.compute.threads import threads as compute_threads
from fedfuse.fusion.distillers import AdamCosine, Distiller
from fedfuse.fusion.labelling import SoftLabels
from fedfuse.fusion.loss import Loss, SoftCrossEntropy
from fedfuse.fusion.table import TensorPool, reachable
from fedfuse.fusion.target import MeanLogits, Target, checked_weight
from fedfuse.in_hand.classes import CompletedTarget, Known, places
from fedfuse.in_hand.frames import columns_of
from fedfuse.in_hand.pools import as_labeled_pool, as_pool
from fedfuse.in_hand.progress import Bars, with_bar
from fedfuse.in_hand.result import Fused, Judge
from fedfuse.in_hand.teachers import Names, Teacher, class_names, each_teacher, logits_of_model
from fedfuse.predict import device_of, evaluating
from fedfuse.types import FedfuseError, NotFiniteError


def fuse(
    teachers: Any,
    student: nn.Module,
    pool: Any,
    *,
    weights: Sequence[float] | None = None,
    labels: Sequence[str] | None = None,
    knows: Sequence[Known | None] | None = None,
    target: Target = MeanLogits(),
    loss: Loss = SoftCrossEntropy(),
    distiller: Distiller = AdamCosine(),
    validation: Any = None,
    device: str | torch.device | None = None,
    seed: int = 0,
    threads: int = 1,
    progress: bool | None = None,
) -> Fused:
    """Distil an ensemble of models, of any architectures, into a copy of `student`, on unlabeled data.

    teachers: one model or several: nets from inputs to logits (B, C), transformers' classifiers, fitted scikit-learn
        classifiers, functions. Each is run once, in eval mode; a generator is read one model at a time.
    pool: inputs (N, ...) as a tensor, an array or a mapping of them, a data frame of numbers, a dataset, or batches.
        Labels are ignored.
    weights: one per teacher; equal by default.
    labels: the names of the student's classes, by default those of its configuration. Teachers that name their classes
        are matched by name.
    knows: for each teacher the classes that it knows, by name or number, or None for all of them.
    validation: (x, y), or a labeled dataset or mapping: for early stopping, and to judge teachers and student.
    device: where nets run, such as "cuda"; by default where each of them is.
    seed: the source of all randomness. The arguments are not changed.
    threads: with how many threads torch computes meanwhile. One is the fastest for small nets, and on a busy machine;
        try more for large ones. The last bits of the result depend on it.
    progress: whether to show progress; by default on a terminal and in a notebook.
    """
    try:
        with compute_threads(threads):
            return _fuse(
                teachers, student, pool, weights, labels, knows, target, loss, distiller, validation, device, seed,
                progress,
            )  # fmt: skip
    except torch.OutOfMemoryError as error:
        remedy = "lower the distiller's batch_size, or choose another device"
        raise devices.out_of_memory(error, remedy) from error


def _fuse(
    teachers: Any,
    student: nn.Module,
    pool: Any,
    weights: Sequence[float] | None,
    labels: Sequence[str] | None,
    knows: Sequence[Known | None] | None,
    target: Target,
    loss: Loss,
    distiller: Distiller,
    validation: Any,
    device: str | torch.device | None,
    seed: int,
    progress: bool | None,
) -> Fused:
    if not isinstance(student, nn.Module):
        raise FedfuseError(f"the student is a {type(student).__name__}: give a torch.nn.Module to train")
    names = class_names(labels, student)
    where = None if device is None else devices.resolve(device)
    dtype = torch.float64 if any(p.dtype is torch.float64 for p in student.parameters()) else torch.float32
    padding = getattr(getattr(student, "config", None), "pad_token_id", None) or 0
    inputs = as_pool(pool, dtype=dtype, padding=padding)
    columns = columns_of(pool)
    held_out = None if validation is None else as_labeled_pool(validation, "validation", dtype, padding, columns, names)
    steps = distiller.plan(len(inputs))
    rows = reachable(len(inputs), steps, distiller.batch_size, rng.generator(seed, "pool"))
    model = copy.deepcopy(student)
    model.zero_grad(set_to_none=True)
    home = device_of(model)
    with devices.on_device(model, where or home), Bars(progress) as bars:
        classes = _width(model, inputs, rows, names)
        if held_out is not None:
            _check_labels(held_out[1], classes)
        judge = Judge(held_out, classes, target)
        soft = _labels(
            each_teacher(teachers, columns), inputs, rows, classes, names, weights, knows, target, judge, where, bars
        )
        soft = loss(soft)
        with evaluating(model):  # restores the student's modes after the distiller
            result = distiller(
                model, with_bar(inputs, bars, "distilling", steps), soft, judge.accuracy_of(model),
                lambda what: rng.generator(seed, "distil", what),
            )  # fmt: skip
        model.zero_grad(set_to_none=True)
        qualities = judge.value(model, inputs, soft)
    return Fused(
        model, result.steps, result.losses, result.validation, result.reason, names, qualities.teachers,
        qualities.average, qualities.ensemble, qualities.student,
    )  # fmt: skip


def _labels(
    teachers: Iterable[Teacher],
    inputs: TensorPool,
    rows: Tensor,
    classes: int,
    names: Names | None,
    weights: Sequence[float] | None,
    knows: Sequence[Known | None] | None,
    target: Target,
    judge: Judge,
    where: torch.device | None,
    bars: Bars,
) -> SoftLabels:
    """Run each teacher once, and return the soft labels of the ensemble."""
    for weight in weights or ():
        checked_weight(weight)
    running = CompletedTarget(target, len(rows), classes)
    count = 0
    for count, teacher in enumerate(teachers, 1):
        weight = 1.0 if weights is None else float(_of_each(weights, count, "weights"))
        known = None if knows is None else _of_each(knows, count, "knows")
        net = teacher.net
        with devices.on_device(net, where or device_of(net)):
            logits = logits_of_model(net, with_bar(inputs, bars, teacher.title, rows=len(rows)), rows, teacher.title)
            outputs = places(teacher, logits.shape[1], classes, names, known)
            judge.teacher(teacher, net, running.add(logits, weight, outputs), outputs, weight)
    for what, values in (("weights", weights), ("knows", knows)):
        if values is not None and count < len(values):
            raise FedfuseError(f"{len(values)} {what} were given for {count} teachers: give one each")
    if not count:
        raise FedfuseError("there is no teacher: give the ensemble at least one model")
    probs, floor, diversity = running.value()
    if not bool(torch.isfinite(probs).all()):
        raise NotFiniteError("the ensemble's soft labels are not finite: check the teachers' outputs")
    return SoftLabels(rows, probs, floor, target.temperature, diversity)


def _of_each(values: Sequence[Any], number: int, what: str) -> Any:
    if number > len(values):
        raise FedfuseError(f"{len(values)} {what} were given for more teachers: give one each")
    return values[number - 1]


def _width(model: nn.Module, pool: TensorPool, rows: Tensor, names: Names | None) -> int:
    """Return the number of the student's classes."""
    if next(model.parameters(), None) is None:
        raise FedfuseError("the student has no parameters to train: choose a net")
    if any(p.dtype in (torch.float16, torch.bfloat16) for p in model.parameters()):
        raise FedfuseError("the student is in half precision, in which small steps are lost: call its float() first")
    width = logits_of_model(model, pool, rows[:2], "the student").shape[1]
    if names is not None and len(names) != width:
        raise FedfuseError(f"the student gives {width} logits for {len(names)} labels: give one name for each class")
    return width


def _check_labels(y: Tensor, classes: int) -> None:
    if len(y) and not 0 <= int(y.min()) <= int(y.max()) < classes:
        wrong = int(y.min()) if int(y.min()) < 0 else int(y.max())
        raise FedfuseError(
            f"validation has the label {wrong}, and the student {classes} classes: number them from 0 to {classes - 1}"
        )
