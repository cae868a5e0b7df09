"""`fuse_to_folder`: models by name are fused into one, which is written to a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from fedfuse.compute import devices
from fedfuse.compute.threads import threads as compute_threads
from fedfuse.data.sources.location import Location
from fedfuse.evaluate import accuracy
from fedfuse.fusion.distillers import AdamCosine, Distiller
from fedfuse.fusion.table import logits_of
from fedfuse.fusion.target import MeanLogits, Target
from fedfuse.in_hand.by_name import load_student, load_teacher, needs_classes
from fedfuse.in_hand.classes import places
from fedfuse.in_hand.fuse import fuse
from fedfuse.in_hand.logit_cache import LogitCache, StoredLogits, WithoutRow, with_row_numbers
from fedfuse.in_hand.progress import Bars
from fedfuse.in_hand.raw import Raw, read_labeled, read_pool
from fedfuse.in_hand.readings import NamedModel, all_rows, inputs_hash
from fedfuse.in_hand.result import Fused, Quality, WeightAverage
from fedfuse.in_hand.student_folder import check_folder, write_folder
from fedfuse.in_hand.teachers import Names, Teacher
from fedfuse.types import FedfuseError

POOL, VALIDATION, TEST = "pool", "validation", "test"
PROBE = 2  # rows on which each model is tried before anything is run


@dataclass(frozen=True)
class Row:
    """How good a model is: shares of rows, None where unknown."""

    name: str
    validation: float | None = None  # accuracy
    test: float | None = None  # accuracy
    agreement: float | None = None  # with the ensemble's class on the pool


@dataclass(frozen=True)
class FusedFolder:
    """What was written, and how good all models are."""

    folder: Path
    fused: Fused
    rows: tuple[Row, ...]
    reused: tuple[str, ...]  # teachers whose logits were in the cache
    report: Path | None


@dataclass(frozen=True)
class _TeacherProbe:
    """A teacher that was tried: what loads it, and its logits on a few rows of the pool."""

    title: str
    load: Callable[[], NamedModel]
    labels: Names | None
    probe: Tensor  # (PROBE, C)


@dataclass(frozen=True)
class _Outcome:
    """The logits (N, C) of every teacher on each part of the data, in the order of the student's classes."""

    titles: tuple[str, ...]
    logits: Mapping[str, Sequence[Tensor]]
    average: Mapping[str, Tensor]  # logits of the average of weights, if there is one


def fuse_to_folder(
    teachers: Sequence[str],
    student: str,
    pool: str,
    out: str | Path,
    *,
    validation: str | None = None,
    test: str | None = None,
    target: Target = MeanLogits(),
    distiller: Distiller = AdamCosine(),
    device: str = devices.AUTO,
    seed: int = 0,
    threads: int = 1,
    report: bool = True,
    data_dir: Path | None = None,
    progress: bool | None = None,
) -> FusedFolder:
    """Fuse models by name, and write the student to the folder `out`, which must be new or empty.

    teachers: fedfuse's model files and exported folders, folders or ids (hf:<id>) of Hugging Face classifiers, or
        package.module:factory. Each reads the data by its own size, mean and standard deviation, or tokenizer.
    student: an architecture's name, hf:<id or folder>, or a model file of fedfuse.
    pool, validation, test: data sources; for texts, parquet files with a column text or sentence, or FILE::COLUMN.
    threads: as of `fuse`.

    Teachers' logits are kept in the cache, so that a call with another student or after a crash does not run them
    again. Nothing is written to `out` before the student is trained.
    """
    out = Path(out)
    check_folder(out)
    with compute_threads(threads):
        where = devices.resolve(device)
        parts = _read(pool, validation, test, Location.at(data_dir))
        distiller.plan(len(parts[POOL]))
        probes = _check_teachers(teachers, parts, where)
        classes = probes[0].probe.shape[1]
        learner = load_student(student, parts[POOL], classes, seed)
        labels = _class_names(probes, learner, classes)
        _check_student(learner, parts, classes)
        parts = {name: _match_labels(name, raw, labels, classes) for name, raw in parts.items()}
        with Bars(progress) as bars:
            cache = LogitCache(Location.at(data_dir).cache, bars)
            outcome = _run_teachers(probes, parts, labels, classes, cache, where)
        fused = _distil(outcome, learner, parts, target, distiller, device, seed, threads, progress)
        rows, fused = _rows(fused, outcome, learner, parts, target)
    settings = {
        "teachers": list(teachers), "student": student, "pool": pool, "validation": validation, "test": test,
        "target": repr(target), "distiller": repr(distiller), "seed": seed, "threads": threads,
    }  # fmt: skip
    facts = {**settings, "quality": [asdict(row) for row in rows]}
    page = write_folder(out, learner, fused, labels or tuple(map(str, range(classes))), facts, report=report)
    reused = tuple(title for title in outcome.titles if title not in cache.computed)
    return FusedFolder(out, fused, rows, reused, page)


def _read(pool: str, validation: str | None, test: str | None, location: Location) -> dict[str, Raw]:
    parts: dict[str, Raw] = {POOL: read_pool(pool, location)}
    for name, source in ((VALIDATION, validation), (TEST, test)):
        if source is not None:
            parts[name] = read_labeled(source, location, f"--{name}")
    return parts


def _check_teachers(names: Sequence[str], parts: Mapping[str, Raw], where: torch.device) -> list[_TeacherProbe]:
    """Load and try every teacher once, so that a bad one is found before a good one is run."""
    if not names:
        raise FedfuseError("there is no teacher: name at least one model")
    if twice := [name for name in names if list(names).count(name) > 1]:
        raise FedfuseError(f"{twice[0]} is named twice: name each teacher once")
    short = [Path(name).name for name in names]
    titles = [s if short.count(s) == 1 else name for s, name in zip(short, names, strict=True)]
    probes: dict[str, _TeacherProbe] = {}
    classes = None
    # Functions that take the number of classes come last: the other teachers state it.
    for name, title in sorted(zip(names, titles, strict=True), key=lambda pair: needs_classes(pair[0])):
        probes[name] = _check_teacher(name, title, parts, classes or _classes_of(parts), where)
        width = probes[name].probe.shape[1]
        if width != (classes or width):
            first = next(iter(probes.values())).title
            raise FedfuseError(
                f"{title} gives logits for {width} classes, {first} for {classes}: choose teachers of the same classes"
            )
        classes = width
    return [probes[name] for name in names]


def _classes_of(parts: Mapping[str, Raw]) -> int | None:
    """The number of classes of the data, by the labeled parts first."""
    for name in (VALIDATION, TEST, POOL):
        raw = parts.get(name)
        if raw is not None and raw.labels is not None:
            return len(raw.labels)
    return None


def _check_teacher(
    name: str, title: str, parts: Mapping[str, Raw], classes: int | None, where: torch.device
) -> _TeacherProbe:
    def load() -> NamedModel:
        return load_teacher(name, title, parts[POOL], classes)

    model = load()
    with devices.on_device(model.net, where):
        probe = _probe(model, parts)
    return _TeacherProbe(title, load, model.labels, probe)


def _probe(model: NamedModel, parts: Mapping[str, Raw]) -> Tensor:
    """Return a model's logits on the first rows of the pool. Raise an error if it cannot read all parts."""
    pools = {name: model.reading.pool(raw, model.title) for name, raw in parts.items()}
    try:
        return logits_of(model.net, pools[POOL], torch.arange(min(PROBE, len(pools[POOL]))), model.title)
    except FedfuseError:
        raise
    except (Exception, SystemExit) as error:  # a net may raise anything on inputs that it cannot take
        reason = str(error).strip().partition("\n")[0]
        raise FedfuseError(
            f"{model.title} fails on {parts[POOL].name} ({type(error).__name__}: {reason}): choose data that it reads"
        ) from error


def _check_student(learner: NamedModel, parts: Mapping[str, Raw], classes: int) -> None:
    width = _probe(learner, parts).shape[1]
    if width != classes:
        raise FedfuseError(
            f"{learner.title} gives logits for {width} classes, the teachers for {classes}: choose another student"
        )


def _class_names(probes: Sequence[_TeacherProbe], learner: NamedModel, classes: int) -> Names | None:
    """Return the names of the classes, in the student's order if it has the teachers' names."""
    named = [one.labels for one in probes if one.labels is not None]
    labels = named[0] if named else learner.labels
    if labels is not None and learner.labels is not None and set(labels) == set(learner.labels):
        labels = learner.labels
    for one in probes:
        places(Teacher(one.title, nn.Identity(), one.labels), classes, classes, labels, None)  # raises for a stranger
    return labels


def _match_labels(part: str, raw: Raw, labels: Names | None, classes: int) -> Raw:
    """Return labeled data with the student's numbers of the classes, by name where the names are the same."""
    if raw.y is None:
        return raw
    if labels is not None and raw.labels is not None and set(raw.labels) <= set(labels):
        return replace(raw, y=torch.tensor([labels.index(name) for name in raw.labels])[raw.y], labels=labels)
    low, high = int(raw.y.min()), int(raw.y.max())
    if low < 0 or high >= classes:
        raise FedfuseError(
            f"--{part} {raw.name} has the label {low if low < 0 else high}, and the teachers {classes} classes: number "
            f"the classes from 0 to {classes - 1}"
        )
    return raw


def _run_teachers(
    probes: Sequence[_TeacherProbe],
    parts: Mapping[str, Raw],
    labels: Names | None,
    classes: int,
    cache: LogitCache,
    where: torch.device,
) -> _Outcome:
    """Return what all teachers, and the average of their weights, say of all parts. One is in memory at a time."""
    logits: dict[str, list[Tensor]] = {name: [] for name in parts}
    mean, readings, like = WeightAverage(), set(), None
    for one in probes:
        model = one.load()
        outputs = places(Teacher(one.title, model.net, one.labels), classes, classes, labels, None)
        pools = {name: model.reading.pool(raw, one.title) for name, raw in parts.items()}
        with devices.on_device(model.net, where):
            for name, pool in pools.items():
                own = cache.logits(model, pool, parts[name].name, one.probe)
                logits[name].append(own if outputs is None else own[:, outputs.argsort()])
        readings.add(inputs_hash(pools[POOL]))
        mean.add(model.net, 1.0, aligned=outputs is None and len(readings) == 1)
        like = like or model
    net = mean.value() if len(probes) > 1 else None
    evaluation_parts = [name for name in (VALIDATION, TEST) if name in parts] or [POOL]
    average = {}
    if net is not None and like is not None:
        with devices.on_device(net, where):
            for name in evaluation_parts:
                inputs = like.reading.pool(parts[name], "the average of weights")
                average[name] = logits_of(net, inputs, all_rows(inputs), "the average of weights")
    return _Outcome(tuple(one.title for one in probes), logits, average)


def _distil(
    outcome: _Outcome,
    learner: NamedModel,
    parts: Mapping[str, Raw],
    target: Target,
    distiller: Distiller,
    device: str,
    seed: int,
    threads: int,
    progress: bool | None,
) -> Fused:
    """Train the student. The teachers are stand-ins that look their logits up by row number: pool, then validation."""
    used = [name for name in (POOL, VALIDATION) if name in parts]
    stand_ins = [
        Teacher(title, StoredLogits(torch.cat([outcome.logits[name][number] for name in used])))
        for number, title in enumerate(outcome.titles)
    ]
    inputs = {name: learner.reading.pool(parts[name], learner.title) for name in used}
    held_out = None
    if VALIDATION in parts:
        held_out = (with_row_numbers(inputs[VALIDATION], len(parts[POOL])), parts[VALIDATION].y)
    return fuse(
        stand_ins, WithoutRow(learner.net), with_row_numbers(inputs[POOL], 0), target=target, distiller=distiller,
        validation=held_out, device=device, seed=seed, threads=threads, progress=progress,
    )  # fmt: skip


def _rows(
    fused: Fused, outcome: _Outcome, learner: NamedModel, parts: Mapping[str, Raw], target: Target
) -> tuple[tuple[Row, ...], Fused]:
    """Return the quality of all models, and the result with that of the ensemble and the average of weights."""
    assert fused.student is not None
    ensemble = {name: _labels_of_ensemble(target, logits) for name, logits in outcome.logits.items()}
    test = None
    if TEST in parts:
        pool = learner.reading.pool(parts[TEST], learner.title)
        test = _accuracy(logits_of(student_net(fused), pool, all_rows(pool), learner.title), parts[TEST])
    rows = [
        Row(title, quality.accuracy, _of(outcome.logits, TEST, parts, number), quality.agreement)
        for number, (title, quality) in enumerate(zip(outcome.titles, fused.teachers, strict=True))
    ]
    average = None
    if outcome.average:
        shares = {name: _accuracy(logits, parts[name]) for name, logits in outcome.average.items() if name != POOL}
        agreement = None
        if POOL in outcome.average:
            agreement = float((outcome.average[POOL].argmax(1) == ensemble[POOL].argmax(1)).double().mean())
        average = Row("average of weights", shares.get(VALIDATION), shares.get(TEST), agreement)
        rows.append(average)
    shares = {name: _accuracy(probs, parts[name]) for name, probs in ensemble.items() if name != POOL}
    rows.append(Row("ensemble", shares.get(VALIDATION), shares.get(TEST)))
    rows.append(Row("student", fused.student.accuracy, test, fused.student.agreement))
    return tuple(rows), replace(
        fused,
        average=None if average is None else Quality(average.name, average.validation, average.agreement),
        ensemble=Quality("ensemble", shares.get(VALIDATION)),
    )


def student_net(fused: Fused) -> nn.Module:
    """Return the student itself, which takes its inputs without row numbers."""
    assert isinstance(fused.model, WithoutRow)
    return fused.model.net


def _labels_of_ensemble(target: Target, logits: Sequence[Tensor]) -> Tensor:
    running = target.start(*logits[0].shape)
    for one in logits:
        running.add(one)
    return running.value().probs


def _of(logits: Mapping[str, Sequence[Tensor]], part: str, parts: Mapping[str, Raw], number: int) -> float | None:
    return _accuracy(logits[part][number], parts[part]) if part in logits else None


def _accuracy(scores: Tensor, raw: Raw) -> float:
    assert raw.y is not None
    return accuracy(scores, raw.y)
