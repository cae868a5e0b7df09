"""Fusion by ensemble distillation: pool -> table -> target -> student."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fedfuse import bounds
from fedfuse.algorithm import Algorithm
from fedfuse.compute.batches import images_of
from fedfuse.context import Context
from fedfuse.data.augment import augmentation
from fedfuse.data.federation import Federation
from fedfuse.evaluate import evaluate
from fedfuse.facts import EnsembleQuality, Facts, FirstAndLast, Quality, Student, divergence
from fedfuse.fusion.admission import Admission, AdmitAll
from fedfuse.fusion.aggregate import Aggregate, Averaged, WeightedMean
from fedfuse.fusion.diagnostics import Diagnostics
from fedfuse.fusion.distillers import AdamCosine, Distiller, Validate
from fedfuse.fusion.ensemble import Clients, Ensemble, Teacher
from fedfuse.fusion.ground_truth import GroundTruth
from fedfuse.fusion.labelling import Labelling, SoftLabels
from fedfuse.fusion.loss import Loss, SoftCrossEntropy
from fedfuse.fusion.students import PerArchitecture, Students
from fedfuse.fusion.table import augmented_views, logits_of, reachable
from fedfuse.fusion.target import MeanLogits, MeanProbs, Target
from fedfuse.predict import Pool
from fedfuse.types import FedfuseError, NotFiniteError, ServerState, Snapshot, Tensors, Update, model_of

# In the server's memory, by architecture: (rounds in a row without a gain, those of them with the teachers to blame).
STREAK = "fusion/no gain"
WARN_AFTER = 3  # rounds in a row


@dataclass(frozen=True)
class Distilled:
    """Aggregate, then distil the ensemble into every student.

    `probe` is the number of test examples (the first ones; 0 for none) on which facts are measured. With `views` > 0,
    teachers and students both use that many copies of the pool, augmented by `view`, as in FedDF's released code.
    """

    aggregate: Aggregate = field(default_factory=WeightedMean)
    ensemble: Ensemble = field(default_factory=Clients)
    target: Target = field(default_factory=MeanLogits)
    loss: Loss = field(default_factory=SoftCrossEntropy)
    distiller: Distiller = field(default_factory=AdamCosine)
    students: Students = field(default_factory=PerArchitecture)
    admission: Admission = field(default_factory=AdmitAll)
    probe: int = 2000
    views: int = 0
    view: str = "crop+flip"

    def __post_init__(self) -> None:
        bounds.not_negative(self, "0 measures nothing", probe=self.probe)
        bounds.not_negative(self, "0 uses the pool as it is", views=self.views)

    def __call__(self, server: ServerState, updates: Iterable[Update], ctx: Context) -> tuple[ServerState, Facts]:
        pool, rows, origin = self._pool(ctx)  # an unsuitable pool fails before any client works
        truth = self.target.labels(rows, origin, ctx) if isinstance(self.target, GroundTruth) else None
        diagnostics = Diagnostics(ctx.data.test, self.probe, self.target if truth is None else MeanProbs())
        validated = Diagnostics(ctx.data.validation, len(ctx.data.validation) if truth is None else 0, self.target)
        runs = _TeacherRuns(Labelling(self.target, pool, rows), diagnostics, validated, ctx, teach=truth is None)
        average = self.aggregate.start(server, ctx)
        ensemble = self.ensemble.start(server, ctx)
        students = self.students.start(server, ctx)

        for update, reason in self.admission(updates, ctx):
            problem = reason or runs.add_client(update, ensemble.teachers(update))
            if problem is not None:
                runs.dropped[update.client] = problem
                continue
            average.add(update)
            ensemble.add(update)
            students.add(update)

        averages, memory = average.value()
        for teacher in ensemble.value(averages):
            runs.add(teacher)
        try:
            soft = runs.labels.value() if runs.labels.teachers else truth
            labels = self.loss(soft) if averages and soft is not None else None
            reason = "no model was left to teach"
        except NotFiniteError as problem:
            labels, reason = None, str(problem)
        if labels is None:
            rest = "the averages, undistilled" if averages else "the previous models"
            state = ServerState(server.round + 1, {**server.models, **averages}, memory)
            return state, replace(runs.facts(), warning=f"{reason}: the server keeps {rest}")

        models: dict[str, Snapshot] = {}
        facts: dict[str, Student] = {}
        for arch, start in students.starts(averages).items():
            models[arch], facts[arch] = self._distil(start, server.models[arch], averages.get(arch), labels, runs)

        measured = runs.facts()
        ensemble_validation = measured.ensemble.validation if measured.ensemble else None
        streak = _rounds_without_gain(memory.get(STREAK, {}), facts, ensemble_validation)
        memory = {**memory, STREAK: streak} if streak else memory
        state = ServerState(server.round + 1, students.value(averages, models), memory)
        return state, replace(measured, students=facts, warning=divergence(facts) or _warning(streak))

    def check(self, ctx: Context) -> None:
        self._pool(ctx.at(1))

    def learning(self, data: Federation) -> tuple[Distiller, int] | None:
        return None if data.pool is None else (self.distiller, len(data.pool))

    def _pool(self, ctx: Context) -> tuple[Pool, Tensor, Tensor]:
        """Return the pool, those of its rows (n,) that the distiller can use, and the rows (n,) that they are views of.

        Without views, the last two are the same.
        """
        pool: Pool | None = ctx.pool
        if pool is None:
            raise FedfuseError("distillation needs unlabeled data at the server: set data.pool")
        size = self.distiller.batch_size
        rows = reachable(len(pool), self.distiller.plan(len(pool)), size, ctx.rng("pool", ctx.round))
        if self.views == 0:
            return pool, rows, rows
        change = augmentation(self.view, tuple(images_of(pool.batch(rows[:1])).shape[1:]))
        copies = augmented_views(pool, rows, change, self.views, ctx.rng("views", ctx.round))
        of_copies = reachable(len(copies), self.distiller.plan(len(copies)), size, ctx.rng("view", ctx.round))
        return copies, of_copies, rows[of_copies % len(rows)]

    def _distil(
        self, start: Snapshot, previous: Snapshot, average: Snapshot | None, labels: SoftLabels, runs: _TeacherRuns
    ) -> tuple[Snapshot, Student]:
        """Train one student. Return it and its facts. If training diverges, return the start or the previous model."""
        ctx, arch = runs.ctx, start.arch
        before = None if average is None else runs.quality(average, f"the average {arch}")
        net = ctx.nets.load(start, "student")
        try:
            end = self.distiller(
                net, runs.labels.pool, labels, runs.validate, lambda what: ctx.rng(f"distil {what}", ctx.round, arch)
            )
            logits_of(net, runs.labels.pool, labels.rows[: self.distiller.batch_size], f"the student {arch}")
        except NotFiniteError as problem:
            fallback, which = runs.better(start, previous, labels)
            reason = f"{problem}; the server keeps {which}"
            return fallback, Student(0, FirstAndLast(math.nan, math.nan), reason, before, diverged=True)
        student = Snapshot.of(arch, net)
        losses = FirstAndLast(float(end.losses[0]), float(end.losses[-1]))
        after = runs.quality(student, f"the student {arch}")
        return student, Student(end.steps, losses, end.reason, before, after)


class _TeacherRuns:
    """Runs each teacher once: on the pool for labels (unless `teach` is False), on probe and validation for facts."""

    def __init__(
        self, labels: Labelling, diagnostics: Diagnostics, validated: Diagnostics, ctx: Context, teach: bool = True
    ) -> None:
        self.labels, self.diagnostics, self.validated, self.ctx, self.teach = labels, diagnostics, validated, ctx, teach
        self.dropped: dict[int, str] = {}
        self.silent: list[str] = []
        validation = ctx.data.validation
        self.validate: Validate | None = (lambda net: evaluate(net, validation).accuracy) if len(validation) else None

    def add_client(self, update: Update, teachers: Sequence[Teacher]) -> str | None:
        """Add the client's teachers, or only measure its model. Return why the client cannot take part, or None."""
        try:
            for teacher in teachers:
                self._add(teacher, update.client)
            if not teachers:
                net = self.ctx.nets.load(model_of(update, "the ensemble is made of client models"), "teacher")
                logits = self.diagnostics.logits(net, f"client {update.client}")
                self.diagnostics.add_client(update.client, logits)
        except NotFiniteError as problem:
            return str(problem)
        return None

    def add(self, teacher: Teacher) -> None:
        """Add a teacher that is not a client's model. It is left out if its logits are not finite."""
        try:
            self._add(teacher)
        except NotFiniteError as problem:
            self.silent.append(str(problem))

    def _add(self, teacher: Teacher, client: int | None = None) -> None:
        net = self.ctx.nets.load(teacher.model, "teacher")
        # Compute all before adding any, so that a teacher that is not finite adds nothing.
        on_pool = self.labels.logits(net, teacher.name) if self.teach else None
        on_probe = self.diagnostics.logits(net, teacher.name)
        on_validation = self.validated.logits(net, teacher.name)
        if on_pool is not None:
            self.labels.add(on_pool, teacher.name, teacher.weight)
        self.diagnostics.add_teacher(on_probe, teacher.weight)
        self.validated.add_teacher(on_validation, teacher.weight)
        if client is not None:
            self.diagnostics.add_client(client, on_probe)
        if teacher.sample:
            self.diagnostics.add_sample(on_probe)

    def quality(self, model: Snapshot, name: str) -> Quality:
        """Return the model's quality on the probe and, where there is any, on validation data."""
        net = self.ctx.nets.load(model, "teacher")
        accuracy = None if self.validate is None else self.validate(net)
        try:
            return replace(self.diagnostics.quality(net, name), validation=accuracy)
        except NotFiniteError:
            return Quality(validation=accuracy)

    def better(self, start: Snapshot, previous: Snapshot, labels: SoftLabels) -> tuple[Snapshot, str]:
        """Return the one of these two models that is better on validation data, else on the labels, and its name."""
        names = {"the student's start": start, "the previous model": previous}
        scores = {name: self._score(model, labels) for name, model in names.items()}
        best = max(scores, key=lambda name: scores[name])
        return names[best], best

    def _score(self, model: Snapshot, labels: SoftLabels) -> float:
        """The validation accuracy, else minus the cross entropy with the labels; -inf if it is not finite."""
        net = self.ctx.nets.load(model, "teacher")
        try:
            logits = logits_of(net, self.labels.pool, labels.rows, model.arch)
            score = -float(F.cross_entropy(logits.double(), labels.probs.double()))
            return self.validate(net) if self.validate is not None else score
        except NotFiniteError:
            return -math.inf

    def facts(self) -> Facts:
        dropped = {str(client): reason for client, reason in sorted(self.dropped.items())}
        facts, validated = self.diagnostics.value(), self.validated.value().ensemble
        if validated is not None:
            facts = replace(facts, ensemble=replace(facts.ensemble or EnsembleQuality(), validation=validated.accuracy))
        return replace(facts, teachers=self.labels.teachers, dropped=dropped, silent=tuple(self.silent))


def _rounds_without_gain(streak: Tensors, facts: Mapping[str, Student], ensemble: float | None) -> dict[str, Tensor]:
    """Return for each architecture the rounds in a row without a gain on validation data, and those of them whose
    ensemble is below the average. `ensemble` is its validation accuracy, None if the student does not learn from it.

    A student gains nothing if it is not above the average; one without an average, if it is below its ensemble.
    """
    counts = dict(streak)
    for arch, student in facts.items():
        average, after = (quality.validation if quality else None for quality in (student.average, student.student))
        if after is None or (average is None and ensemble is None):
            continue
        no_gain = average is None or after <= average
        teachers = no_gain and average is not None and ensemble is not None and ensemble < average
        behind = no_gain and (ensemble is None or after < ensemble)  # if all are equal there is nothing to gain
        last = streak.get(arch, torch.zeros(2, dtype=torch.int64))
        counts[arch] = last + torch.tensor([1, int(teachers)]) if teachers or behind else torch.zeros_like(last)
    return counts


def _warning(streak: Tensors) -> str | None:
    """Say whose fault it is, by most of the rounds, that a student has gained nothing for some rounds."""
    late = {arch: counts.tolist() for arch, counts in streak.items() if int(counts[0]) >= WARN_AFTER}
    teachers = [f"{arch} ({rounds} rounds)" for arch, (rounds, below) in late.items() if 2 * below > rounds]
    students = [f"{arch} ({rounds} rounds)" for arch, (rounds, below) in late.items() if 2 * below <= rounds]
    warnings = []
    if teachers:
        warnings.append(
            "the teachers are below the average on validation data, and distillation gains nothing: "
            f"{', '.join(teachers)}; train longer at the clients, change their augmentation, or average only (fedavg)"
        )
    if students:
        warnings.append(
            "the student is below its teachers on validation data: "
            f"{', '.join(students)}; try other unlabeled data, more steps or another learning rate"
        )
    return "; ".join(warnings) or None


def aggregate_of(algorithm: Algorithm) -> Aggregate:
    """Return the aggregate of an algorithm that averages, to distil on top of it."""
    if not isinstance(algorithm.fuse, Averaged | Distilled):
        raise FedfuseError(f"{algorithm.name} does not average models: distil over one that does, such as fedavg")
    return algorithm.fuse.aggregate


def admission_of(algorithm: Algorithm) -> Admission:
    """Return which clients take part in an algorithm that averages, to distil on top of it."""
    return algorithm.fuse.admission if isinstance(algorithm.fuse, Averaged | Distilled) else AdmitAll()
