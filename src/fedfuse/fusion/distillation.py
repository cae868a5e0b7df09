"""Fusion by ensemble distillation: pool -> table -> target -> student.

The stream of updates is read once. The aggregate pulls it; on the way each client model is run over the pool and
feeds the posterior. Averages and samples teach after that, and every student learns from all teachers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedfuse.algorithm import Algorithm, Facts
from fedfuse.context import Context
from fedfuse.data.augment import augmentation
from fedfuse.evaluate import evaluate
from fedfuse.fusion.aggregate import Aggregate, Averaged, WeightedMean
from fedfuse.fusion.diagnostics import Probe
from fedfuse.fusion.distillers import AdamCosine, Distiller, Validate
from fedfuse.fusion.ensemble import Clients, Ensemble, Faculty, Teacher, received
from fedfuse.fusion.labelling import Lecture, SoftLabels
from fedfuse.fusion.students import Admission, Enrolled, PerArchitecture, Students
from fedfuse.fusion.table import NotFiniteError, reachable, views
from fedfuse.fusion.target import MeanLogits, Target
from fedfuse.predict import Pool
from fedfuse.types import FedfuseError, ServerState, Snapshot, Tensors, Update

STREAK = "fusion/below average"  # in the server's memory: for how many rounds in a row, by architecture
HURTS = 3


@dataclass(frozen=True)
class Distilled:
    """Aggregate, then distil the ensemble into every student.

    `probe` is how many test examples (the first ones; 0 for none) measure what the facts record. With `views` > 0
    teachers and students alike see that many copies of the pool, augmented by `view`, as in FedDF's released code.
    """

    aggregate: Aggregate = field(default_factory=WeightedMean)
    ensemble: Ensemble = field(default_factory=Clients)
    target: Target = field(default_factory=MeanLogits)
    distiller: Distiller = field(default_factory=AdamCosine)
    students: Students = field(default_factory=PerArchitecture)
    vetting: Admission | None = None
    probe: int = 2000
    views: int = 0
    view: str = "crop+flip"

    def __call__(self, server: ServerState, updates: Iterable[Update], ctx: Context) -> tuple[ServerState, Facts]:
        lecture = Lecture(self.target, *self._pool(ctx))  # what cannot work fails before the first client is asked
        hall = _Hall(lecture, Probe(ctx.data.test, self.probe, self.target), ctx)
        faculty, enrolled = self.ensemble.start(server, ctx), self.students.enrol(server, ctx)
        averages, memory = self.aggregate(server, self._heard(updates, faculty, enrolled, hall), ctx)
        for teacher in faculty.later(averages):
            hall.teach(teacher)
        if not averages or not lecture.teachers:
            kept = "the previous models" if not averages else "the averages, undistilled"
            state = ServerState(server.round + 1, {**server.models, **averages}, memory)
            return state, {**hall.facts(), "warning": f"no model was left to teach: the server keeps {kept}"}
        labels = lecture.labels()
        learnt, went = {}, {}
        streak = dict(memory.get(STREAK, {}))
        for arch, start in enrolled.starts(averages).items():
            learnt[arch], went[arch] = self._distil(arch, start, averages.get(arch), labels, hall)
            _count(streak, arch, went[arch])
        facts = {**hall.facts(), "students": went, **_warning(streak)}
        kept_memory = {**memory, STREAK: streak} if streak else memory
        return ServerState(server.round + 1, enrolled.handed_back(averages, learnt), kept_memory), facts

    def _pool(self, ctx: Context) -> tuple[Pool, Tensor]:
        """The pool, and those of its rows (n,) that the distiller can touch."""
        pool: Pool | None = ctx.pool
        if pool is None:
            raise FedfuseError("distillation needs unlabeled data at the server: set data.pool")
        size = self.distiller.batch_size
        rows = reachable(len(pool), self.distiller.plan(len(pool)), size, ctx.rng("pool", ctx.round))
        if self.views == 0:
            return pool, rows
        change = augmentation(self.view, tuple(pool.batch(rows[:1]).shape[1:]))
        seen = views(pool, rows, change, self.views, ctx.rng("views", ctx.round))
        return seen, reachable(len(seen), self.distiller.plan(len(seen)), size, ctx.rng("view", ctx.round))

    def _heard(self, updates: Iterable[Update], faculty: Faculty, enrolled: Enrolled, hall: _Hall) -> Iterator[Update]:
        """What the aggregate is to see. A client that it sees has taught by then, if clients teach."""
        for update, reason in self._judged(updates, hall):
            problem = hall.hear(update, faculty.now(update)) if reason is None else reason
            if problem is not None:
                hall.dropped[update.client] = problem
                continue
            faculty.note(update)
            enrolled.note(update)
            yield update

    def _judged(self, updates: Iterable[Update], hall: _Hall) -> Iterator[tuple[Update, str | None]]:
        if self.vetting is None:
            return ((update, None) for update in updates)
        if hall.validate is None:
            raise FedfuseError("drop-worst looks at validation accuracy: hold out data.validation")
        return self.vetting(updates, hall.validated, hall.ctx.data.validation.classes)

    def _distil(
        self, arch: str, start: Snapshot, average: Snapshot | None, labels: SoftLabels, hall: _Hall
    ) -> tuple[Snapshot, dict[str, Any]]:
        before = {} if average is None else hall.measured(average, f"the average {arch}")
        ctx, net = hall.ctx, hall.ctx.nets.load(start, "student")
        went = self.distiller(
            net, hall.lecture.pool, labels, hall.validate, lambda what: ctx.rng(f"distil {what}", ctx.round, arch)
        )
        student = Snapshot.of(arch, net)
        loss = {"first": float(went.losses[0]), "last": float(went.losses[-1])}
        after = hall.measured(student, f"the student {arch}")
        return student, {"average": before, "student": after, "steps": went.steps, "reason": went.reason, "loss": loss}


class _Hall:
    """Where one round's teachers are heard, on the pool and on the probe."""

    def __init__(self, lecture: Lecture, probe: Probe, ctx: Context) -> None:
        self.lecture, self.probe, self.ctx = lecture, probe, ctx
        self.dropped: dict[int, str] = {}
        self.silent: list[str] = []
        validation = ctx.data.validation
        self.validate: Validate | None = None
        if len(validation):
            self.validate = lambda net: evaluate(net, validation).accuracy

    def validated(self, model: Snapshot) -> float:
        assert self.validate is not None
        return self.validate(self.ctx.nets.load(model, "teacher"))

    def hear(self, update: Update, teachers: Iterable[Teacher]) -> str | None:
        """Let a client's model teach, if it is among the teachers. Why it is to be dropped, if it is."""
        try:
            for teacher in teachers:
                self._teach(teacher, update.client)
                break
            else:
                model = received(update)
                seen = self.probe.look(self.ctx.nets.load(model, "teacher"), f"client {update.client}")
                self.probe.client(update.client, seen)
        except NotFiniteError as problem:
            return str(problem)
        return None

    def teach(self, teacher: Teacher) -> None:
        try:
            self._teach(teacher)
        except NotFiniteError as problem:
            self.silent.append(str(problem))

    def _teach(self, teacher: Teacher, client: int | None = None) -> None:
        net = self.ctx.nets.load(teacher.model, "teacher")
        # Both are looked at before either is taken in: a teacher that is not finite leaves no trace.
        logits, seen = self.lecture.listen(net, teacher.name), self.probe.look(net, teacher.name)
        self.lecture.take(logits, teacher.name, teacher.weight)
        self.probe.teacher(seen, teacher.weight)
        if client is not None:
            self.probe.client(client, seen)

    def measured(self, model: Snapshot, name: str) -> dict[str, Any]:
        """On the probe, and as `validation` the accuracy on validation data, where there is any."""
        net = self.ctx.nets.load(model, "teacher")
        validation = {} if self.validate is None else {"validation": self.validate(net)}
        return {**self.probe.model(net, name), **validation}

    def facts(self) -> dict[str, Any]:
        facts = {"teachers": self.lecture.teachers, **self.probe.facts()}
        if self.dropped:
            facts["dropped"] = {str(client): reason for client, reason in sorted(self.dropped.items())}
        if self.silent:
            facts["silent"] = self.silent
        return facts


def _count(streak: dict[str, Tensor], arch: str, learnt: dict[str, Any]) -> None:
    """One more round in which the student ended below the average on validation data, or none."""
    before, after = learnt["average"].get("validation"), learnt["student"].get("validation")
    if before is not None and after is not None:
        rounds = int(streak[arch]) + 1 if arch in streak else 1
        streak[arch] = torch.tensor(rounds if after < before else 0)


def _warning(streak: Tensors) -> dict[str, str]:
    hurt = [f"{arch} ({int(rounds)} rounds)" for arch, rounds in streak.items() if int(rounds) >= HURTS]
    if not hurt:
        return {}
    return {
        "warning": f"this pool hurts: the student ends below the average on validation data: {', '.join(hurt)}; "
        "try other unlabeled data, fewer steps or a lower rate"
    }


def aggregate_of(algorithm: Algorithm) -> Aggregate:
    """The aggregate of an algorithm that averages, to distil on top of it."""
    if not isinstance(algorithm.fuse, Averaged | Distilled):
        raise FedfuseError(f"{algorithm.name} does not average models, so nothing can be distilled over it")
    return algorithm.fuse.aggregate
