"""A run: an experiment carried out in a directory, round by round, so that it can be stopped at any instant."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from fedfuse.records import checkpoint, events, record
from fedfuse.records.checkpoint import Checkpoint, write_whole
from fedfuse.context import Context
from fedfuse.data.federation import Federation
from fedfuse.data.sources.location import Shelf
from fedfuse.terminal.progress import Display, problems
from fedfuse.engines import Engine, InProcess, Workers
from fedfuse.models.file import save_model
from fedfuse.records.observer import Observer
from fedfuse.records.record import Clock, RoundRecord
from fedfuse.round import run_round
from fedfuse.records.directory import (CHECKPOINTS, EVENTS, EXPERIMENT, MODELS, ROUNDS, SCRATCH, write_evaluation, write_federation)
from fedfuse.select import cohort_size, select
from fedfuse.threads import threads
from fedfuse.tracking import trackers
from fedfuse.types import FedfuseError, ServerState, Snapshot

if TYPE_CHECKING:
    from fedfuse.config.experiment import Experiment


# Gives an engine for this experiment in this directory and, where it knows them, the clients' capabilities (K,).
Engines = Callable[["Experiment", Federation, Path], tuple[Engine, Tensor | None]]


@dataclass(frozen=True)
class Run:
    """A finished run: where it lies, its rounds, and the server's models."""

    path: Path
    history: list[RoundRecord]
    models: Mapping[str, Snapshot]

    @property
    def best(self) -> RoundRecord:
        return max(self.history, key=lambda r: r.test_accuracy)

    @property
    def final(self) -> RoundRecord:
        return self.history[-1]


def perform(
    experiment: Experiment,
    out: str | Path | None,
    *,
    resume: bool,
    display: Display,
    observers: Sequence[Observer] = (),
    engines: Engines | None = None,
) -> Run:
    """Carry out all rounds, or with `resume` those that are left. Every finished round is on disk.

    `engines` makes the engine; without it clients work on this machine.
    """
    path = Path(out) if out is not None else default_path(experiment, resume)
    try:
        return _perform(experiment, path, resume, display, observers, engines or _engine)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FedfuseError(
            f"{path}: {error.strerror or error}; every finished round is kept: make room and go on with --resume"
        ) from error


def _perform(
    experiment: Experiment,
    path: Path,
    resume: bool,
    display: Display,
    observers: Sequence[Observer],
    engines: Engines,
) -> Run:
    if (path / EXPERIMENT).exists() and not resume:
        raise FedfuseError(f"{path} holds a run already: go on with --resume, or choose another --out")
    federation = experiment.check(Shelf.at(progress=display.preparing))
    path.mkdir(parents=True, exist_ok=True)
    with _alone_in(path), threads(experiment.run_.threads):
        _settle(path, experiment, federation)
        engine, capability = engines(experiment, federation, path)
        with closing(engine):
            ctx = experiment.context(federation, capability)
            write_federation(path, ctx)
            server, history = _rounds(experiment, ctx, engine, path, display, observers)
        for model in server.models.values():
            save_model(path / MODELS, model, federation.train, federation.labels)
        if not any(event.kind == "finished" for event in events.read(path / EVENTS)):
            events.append(path / EVENTS, "finished", server.round)
    run = Run(path, history, server.models)
    display.end(run.path, history)
    return run


def _rounds(
    experiment: Experiment,
    ctx: Context,
    engine: Engine,
    path: Path,
    display: Display,
    observers: Sequence[Observer],
) -> tuple[ServerState, list[RoundRecord]]:
    algorithm, rules = experiment.algorithm.build(), experiment.run_.vetting()
    server, history = _recover(ctx, engine, path, display)
    sizes = torch.tensor([len(part) for part in ctx.data.parts])
    cohort_of = cohort_size(len(sizes), experiment.run_.fraction)
    how = experiment.run_.selection or algorithm.selection
    display.begin(f"{experiment.name} · {algorithm.name}", ctx.rounds, history)
    observers = [*trackers(experiment.run_.track, lambda text: _warn(path, display, history, text)), *observers]
    with _watched(experiment, path, history, observers):
        for number in range(server.round + 1, ctx.rounds + 1):
            now, clock = ctx.at(number), Clock()
            for again in range(experiment.run_.retries + 1):
                draw = (number, again) if again else (number,)
                cohort = select(sizes, cohort_of, how, now.rng("select", *draw))
                display.round_begins(number, cohort)
                after, done = run_round(algorithm, server, engine, cohort, rules, now, display.answered)
                if done.note is None or again == experiment.run_.retries:
                    break
                for problem in [*problems(done), f"round {number}: another cohort is asked"]:
                    _warn(path, display, history, problem)
            server = after
            # The record travels inside the checkpoint, so a crash between the two files loses neither.
            with clock.stage("checkpoint"):
                write_evaluation(path, done)
                checkpoint.save(path / CHECKPOINTS, Checkpoint(server, engine.memory(), done))
            done = replace(done, seconds={**done.seconds, **clock.seconds}, memory=_peak_memory(engine), details={})
            record.append(path / ROUNDS, done)
            history.append(done)
            display.round_ends(done)
            for observer in observers:
                observer.round(done)
    return server, history


@contextmanager
def _watched(
    experiment: Experiment, path: Path, history: list[RoundRecord], observers: Sequence[Observer]
) -> Iterator[None]:
    """Observers see the run begin and end, and the run directory says what ended it before its time."""
    if len(history) < experiment.run_.rounds:
        events.append(path / EVENTS, "resumed" if history else "begun", len(history))
    try:
        for observer in observers:
            observer.begin(experiment, path, tuple(history))
        yield
    except BaseException as cause:
        reason = "by the keyboard" if isinstance(cause, KeyboardInterrupt) else f"{type(cause).__name__}: {cause}"
        with suppress(OSError):  # the disk may be what ended it
            events.append(path / EVENTS, "stopped", len(history), reason)
        raise
    finally:
        for observer in observers:
            observer.end(tuple(history))


def _warn(path: Path, display: Display, history: list[RoundRecord], text: str) -> None:
    """To whoever watches, and to whoever reads the run directory later: a run from Python shows nothing."""
    display.warn(text)
    with suppress(OSError):  # the disk may be what it is about
        events.append(path / EVENTS, "warning", len(history), text)


def _peak_memory(engine: Engine) -> dict[str, int]:
    """Bytes, from the start of each process."""
    unit = 1 if sys.platform == "darwin" else 1024
    own = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    workers = engine.peak_memory()
    return {"server": own, **({"workers": workers} if workers else {})}


def _recover(ctx: Context, engine: Engine, path: Path, display: Display) -> tuple[ServerState, list[RoundRecord]]:
    """The state after the last round that was finished: of the newest sound checkpoint, or the beginning."""
    found, damaged = checkpoint.latest(path / CHECKPOINTS)
    for line in damaged:
        display.warn(f"checkpoint {line}")
        events.append(path / EVENTS, "warning", 0, f"checkpoint {line}")
    if found is None:
        # A record without a checkpoint is a run whose checkpoints are lost, not one that never began.
        if damaged or record.read(path / ROUNDS):
            raise FedfuseError(f"{path / CHECKPOINTS}: no sound checkpoint is left; start anew with another --out")
        server = ServerState(0, ctx.initial())
        (path / ROUNDS).unlink(missing_ok=True)
        return server, []
    assert found.record is not None
    engine.restore(found.clients)
    history = [r for r in record.read(path / ROUNDS) if r.round < found.server.round]
    on_file = [r for r in record.read(path / ROUNDS) if r.round == found.server.round]
    history.append(on_file[0] if on_file else found.record)
    record.rewrite(path / ROUNDS, history)
    return found.server, history


def _settle(path: Path, experiment: Experiment, federation: Federation) -> None:
    """Write what this run is; or, where it is written, refuse to go on as something else."""
    file = path / EXPERIMENT
    current = {**experiment.resolved(), "provenance": provenance(experiment, federation)}
    if file.exists():
        differences = list(_differences(tomllib.loads(file.read_text(encoding="utf-8")), current))
        if differences:
            listed = "\n".join(f"  {d}" for d in differences)
            raise FedfuseError(
                f"{path} cannot be resumed: it was begun as something else\n{listed}\n"
                "Give the same settings, or choose another --out"
            )
    write_whole(file, tomli_w.dumps(current).encode())


def provenance(experiment: Experiment, federation: Federation) -> dict[str, Any]:
    """What besides the sections decides the bits of a run."""
    return {
        "fedfuse": version("fedfuse"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "seed": experiment.run_.seed,
        "threads": experiment.run_.threads,
        "data": federation.fingerprint,
    }


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """What differs, key by key. Workers, trackers and the name change no bit."""
    for key in sorted({*before, *now}):
        dotted = f"{prefix}{key}"
        a, b = before.get(key), now.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from _differences(a, b, f"{dotted}.")
        elif a != b and dotted not in ("run.workers", "run.track", "name"):
            yield f"{dotted}: {_said(a)} then, {_said(b)} now"


def _said(value: Any) -> str:
    return "not set" if value is None else repr(value)


def _engine(experiment: Experiment, federation: Federation, path: Path) -> tuple[Engine, Tensor | None]:
    clients = cohort_size(len(federation.parts), experiment.run_.fraction)
    wanted = experiment.run_.workers or len(os.sched_getaffinity(0))
    if min(wanted, clients) <= 1:
        return InProcess(), None
    folder = (path / SCRATCH / "federation").resolve()  # inside, so that what a kill leaves half-made goes too
    federation.save(folder)
    return Workers(min(wanted, clients), path / EXPERIMENT, folder), None


@contextmanager
def _alone_in(path: Path) -> Iterator[None]:
    """One process at a time in a run directory; what a killed one left in its scratch folder goes."""
    lock = FileLock(path / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise FedfuseError(f"{path} is in use by another process: wait for it, or choose another --out") from None
    try:
        shutil.rmtree(path / SCRATCH, ignore_errors=True)
        yield
    finally:
        shutil.rmtree(path / SCRATCH, ignore_errors=True)
        lock.release()


def default_path(experiment: Experiment, resume: bool) -> Path:
    """`runs/<experiment>-<algorithm>-seed<seed>`, with a number behind it from the second run on."""
    stem = f"{experiment.name}-{experiment.algorithm.name.replace(':', '-')}-seed{experiment.run_.seed}"
    taken = 1
    while (_numbered(stem, taken + 1) / EXPERIMENT).exists():
        taken += 1
    if (_numbered(stem, 1) / EXPERIMENT).exists() and not resume:
        taken += 1
    return _numbered(stem, taken)


def _numbered(stem: str, number: int) -> Path:
    return Path("runs") / (stem if number == 1 else f"{stem}-{number}")
