"""Run an experiment in a directory, round by round. A run can be stopped at any time and resumed."""

from __future__ import annotations

import platform
import resource
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from fedfuse.compute import devices
from fedfuse.config.experiment import Experiment
from fedfuse.context import Context
from fedfuse.data.federation import Federation
from fedfuse.data.sources.location import Location
from fedfuse.engines import Engine
from fedfuse.engines.engine import LOCAL_FAILURE
from fedfuse.files import WriteError, locked, remedy
from fedfuse.models.file import Header, save_model
from fedfuse.records import checkpoint, events, record
from fedfuse.records.checkpoint import Checkpoint
from fedfuse.records.clock import Clock
from fedfuse.records.directory import (
    CHECKPOINTS,
    EVENTS,
    EXPERIMENT,
    FEDERATION,
    MODELS,
    NO_BIT,
    ROUNDS,
    SCRATCH,
    fingerprint,
    write_evaluation,
    write_federation,
    write_or_compare,
)
from fedfuse.records.history import History
from fedfuse.records.lines import Lines
from fedfuse.records.observer import Observer, RunInfo
from fedfuse.records.record import RoundRecord
from fedfuse.records.sealed import digest
from fedfuse.round import run_round
from fedfuse.runs.display import Display
from fedfuse.runs.engine import EngineMaker, local_engine, refuse_local_objects
from fedfuse.runs.progress import from_python
from fedfuse.runs.recover import recover
from fedfuse.runs.result import Run as Run
from fedfuse.runs.setup import Setup, check_setup, load_federation, set_up
from fedfuse.select import cohort_size, select
from fedfuse.tracking import trackers
from fedfuse.types import FedfuseError, ServerState


def run(
    experiment: Experiment,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    progress: bool = True,
    display: Display | None = None,
    observers: Sequence[Observer] = (),
    engines: EngineMaker | None = None,
    federation: Federation | None = None,
) -> Run:
    """Run all rounds in the directory `out`, or with `resume` the remaining ones. Every finished round is on disk.

    progress: show it in a notebook and on a terminal. display: shows it instead. engines: creates the engine; by
    default clients run on this machine. federation: the experiment's data, if it is already loaded.
    """
    path = Path(out) if out is not None else default_path(experiment, resume)
    if resume:
        refuse_local_objects(experiment, "resume: another process")
    with _named_errors(path), from_python(display, progress) as shown:
        _refuse_to_overwrite(path, resume)
        data = federation or load_federation(experiment, Location.at(progress=shown.preparing))
        setup = set_up(experiment, data)
        check_setup(setup)
        path.mkdir(parents=True, exist_ok=True)
        with locked(path), _scratch(path), setup.arithmetic():
            _refuse_to_overwrite(path, resume)
            if not has_rounds(path):
                _clear(path)
            return _Running(setup, path, shown).run(observers, engines or local_engine)


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Raise a FedfuseError that says what is kept in `path`, if memory or the disk ends the run inside the block."""
    try:
        yield
    except BrokenPipeError:
        raise
    except torch.OutOfMemoryError as error:
        remedies = f'lower batch sizes or run.workers, or set run.device = "cpu"; {_continue(path)}'
        raise devices.out_of_memory(error, remedies) from error
    except WriteError as error:
        raise FedfuseError(f"{error}; {_continue(path)}") from error.__cause__
    except OSError as error:
        place = error.filename or path
        raise FedfuseError(f"{place}: {error.strerror or error}: {remedy(error)}; {_continue(path)}") from error


def has_rounds(path: Path) -> bool:
    """Return whether a run directory holds a finished round."""
    return any((path / CHECKPOINTS).glob("round-*")) or bool(Lines.read(path / ROUNDS).texts)


def _refuse_to_overwrite(path: Path, resume: bool) -> None:
    if not resume and has_rounds(path):
        raise FedfuseError(f"{path} already holds a run: continue with --resume, or choose another --out")


def _clear(path: Path) -> None:
    """Remove what a run left that finished no round: it may begin anew, with other settings too."""
    for name in (EXPERIMENT, FEDERATION, ROUNDS, EVENTS):
        (path / name).unlink(missing_ok=True)


def _continue(path: Path) -> str:
    with suppress(OSError, FedfuseError):  # the directory may be what cannot be read
        if has_rounds(path):
            return "every finished round is on disk: continue with --resume"
    return "no round was finished: give the same command again"


class _Running:
    """A run in progress in `path`."""

    def __init__(self, setup: Setup, path: Path, display: Display) -> None:
        self.setup, self.path, self.display = setup, path, display
        self.experiment = setup.experiment
        self.history = History()
        self.claimed: dict[int, int] = {}  # the examples in each client's last accepted answer
        self.lines: list[str] = []  # a hash of each record's line

    def run(self, observers: Sequence[Observer], engines: EngineMaker) -> Run:
        federation = self.setup.federation
        settings = {**self.experiment.resolved(), "provenance": provenance(self.experiment, federation)}
        device = self.setup.ctx.nets.device
        if device.type != "cpu":
            settings["provenance"]["device"] = device.type
        refusal = f"{self.path} cannot be resumed with other settings:"
        write_or_compare(self.path / EXPERIMENT, settings, refusal, NO_BIT)
        self.info = RunInfo(self.path, settings, self.experiment.run.rounds)
        self.fingerprint = fingerprint(settings)
        engine, capability = engines(self.experiment, federation, self.path)
        with closing(engine):
            self.setup = self.setup.with_capability(capability)
            write_federation(self.path, self.setup.ctx, self.fingerprint)
            self.members = len(self.setup.ctx.archs)
            server = self._rounds(engine, observers)
        for model in server.models.values():
            save_model(self.path / MODELS, model, _header(model.arch, federation), federation.tokenizer)
        if not any(event.kind == "finished" for event in events.read(self.path / EVENTS)):
            self._note("finished", server.round)
        self.display.end(self.path, self.history)
        return Run(self.path, self.history, server.models)

    def _rounds(self, engine: Engine, observers: Sequence[Observer]) -> ServerState:
        ctx, algorithm = self.setup.ctx, self.setup.algorithm
        server, self.history, self.lines = recover(ctx, engine, self.path, self.fingerprint, self._warn)
        for outcome in self.history:
            self._claim(outcome)
        place = "" if ctx.nets.device.type == "cpu" else f" · on {ctx.nets.device}"
        self.display.begin(f"{self.experiment.name} · {algorithm.name}{place}", ctx.rounds, self.history)
        for note in self.setup.notes if not self.history else ():
            self._warn(note)
        observers = [*trackers(self.experiment.run.track, self._warn), *observers]
        with self._observed(observers):
            for number in range(server.round + 1, ctx.rounds + 1):
                server, outcome = self._round(number, server, engine)
                clock = Clock()
                # The checkpoint contains the record, so a crash between writing the two files loses neither.
                with clock.stage("checkpoint"):
                    if outcome.evaluated:
                        write_evaluation(self.path, outcome, self.fingerprint)
                    memory = engine.memory()
                    state = Checkpoint(server, memory, outcome, self.fingerprint, self.lines)
                    checkpoint.save(self.path / CHECKPOINTS, state)
                seconds = {**outcome.seconds, **clock.seconds}
                outcome = replace(outcome, seconds=seconds, memory=_peak_memory(engine), details={})
                line = record.append(self.path / ROUNDS, outcome)
                self.lines.append(digest(line))
                self.history.append(line)
                self._claim(outcome)
                self.display.round_ends(outcome)
                for observer in observers:
                    observer.round(outcome)
        return server

    def _round(self, number: int, server: ServerState, engine: Engine) -> tuple[ServerState, RoundRecord]:
        """Run a round. Repeat a round below its quorum with other cohorts, up to `run.retries` times."""
        settings = self.experiment.run
        selection = settings.selection or self.setup.algorithm.selection
        for attempt in range(settings.retries + 1):
            ctx, present = engine.present(self.setup.ctx.at(number), self.claimed)
            self._note_members(ctx)
            draw = (number, attempt) if attempt else (number,)
            size, sizes = cohort_size(len(present), settings.fraction), torch.tensor(ctx.sizes)
            cohort = select(sizes, size, selection, ctx.rng("select", *draw), present)
            self.display.round_begins(number, cohort)
            after, outcome = run_round(
                self.setup.algorithm, server, engine, cohort, settings.vetting(), ctx, self.display.answered
            )
            if number == 1 and attempt == 0:
                _check_first_round(outcome, len(present))
            if outcome.note is None or attempt == settings.retries:
                break
            for problem in [*outcome.problems(), f"round {number}: trying another cohort"]:
                self._warn(problem)
        return after, outcome

    def _claim(self, outcome: RoundRecord) -> None:
        self.claimed |= {int(client): accepted.examples for client, accepted in outcome.clients.items()}

    def _note_members(self, ctx: Context) -> None:
        """Record clients that have joined since the run began: reports read their architectures."""
        if len(ctx.archs) > self.members:
            before = {event.text for event in events.read(self.path / EVENTS) if event.kind == "joined"}
            for name in (f"client {client}" for client in range(self.members, len(ctx.archs))):
                if name not in before:
                    self._note("joined", ctx.round - 1, name)
            write_federation(self.path, ctx, self.fingerprint)
            self.members = len(ctx.archs)

    @contextmanager
    def _observed(self, observers: Sequence[Observer]) -> Iterator[None]:
        """Call observers at the start and at the end of the run, and log what stopped it early."""
        if len(self.history) < self.info.rounds:
            self._note("resumed" if self.history else "begun", len(self.history))
        try:
            for observer in observers:
                observer.begin(self.info, self.history.copy())
            yield
        except BaseException as cause:
            interrupt = isinstance(cause, KeyboardInterrupt)
            reason = str(cause) or "keyboard interrupt" if interrupt else f"{type(cause).__name__}: {cause}"
            with suppress(OSError):  # the disk may be what stopped the run
                self._note("stopped", len(self.history), reason)
            raise
        finally:
            for observer in observers:
                observer.end(self.history.copy())

    def _warn(self, text: str) -> None:
        """Warn on the display and in the run directory, since a run from Python shows nothing."""
        self.display.warn(text)
        with suppress(OSError):  # the warning may be about the disk
            self._note("warning", len(self.history), text)

    def _note(self, kind: events.Kind, round: int, text: str = "") -> None:
        events.append(self.path / EVENTS, kind, round, text, self.fingerprint)


def _check_first_round(outcome: RoundRecord, clients: int) -> None:
    """Raise an error if the local work of every client failed in the same way: then it is not the clients' fault.

    In a cohort of one, it may be. In later rounds such a round changes nothing, and the run continues.
    """
    reasons = set(outcome.rejected.values())
    alike = len(outcome.rejected) == len(outcome.cohort) and len(reasons) == 1
    if alike and len(outcome.cohort) >= min(2, clients) and (reason := reasons.pop()).startswith(LOCAL_FAILURE):
        raise FedfuseError(
            f"round 1: every client {reason}. No round was recorded: correct the model or the settings in [local], and "
            "run again with another --out; or continue with --resume if the cause is outside the experiment"
        )


def _header(arch: str, federation: Federation) -> Header:
    train = federation.train
    mean, std = (tuple(statistic.tolist()) for statistic in (train.mean, train.std))
    return Header(arch=arch, classes=train.classes, shape=train.shape, mean=mean, std=std, labels=federation.labels)


def _peak_memory(engine: Engine) -> dict[str, int]:
    """Return the peak memory since the start of each process, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    own = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    workers = engine.peak_memory()
    return {"server": own, **({"workers": workers} if workers else {})}


def provenance(experiment: Experiment, federation: Federation) -> dict[str, Any]:
    """Return what determines the exact results of a run besides its sections."""
    return {
        "fedfuse": version("fedfuse"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "seed": experiment.run.seed,
        "threads": experiment.run.threads,
        "data": federation.fingerprint,
    }


@contextmanager
def _scratch(path: Path) -> Iterator[None]:
    """Remove the scratch folder before the run, since a killed process may have left one, and after it."""
    shutil.rmtree(path / SCRATCH, ignore_errors=True)
    try:
        yield
    finally:
        shutil.rmtree(path / SCRATCH, ignore_errors=True)


def default_path(experiment: Experiment, resume: bool) -> Path:
    """`runs/<experiment>-<algorithm>-seed<seed>`, followed by a number from the second run on."""
    name = experiment.name.replace("/", "-").lstrip(".-") or "experiment"  # never a path of its own
    stem = f"{name}-{experiment.algorithm.name.replace(':', '-')}-seed{experiment.run.seed}"
    last = 1
    while has_rounds(_numbered(stem, last + 1)):
        last += 1
    if has_rounds(_numbered(stem, 1)) and not resume:
        last += 1
    return _numbered(stem, last)


def _numbered(stem: str, number: int) -> Path:
    return Path("runs") / (stem if number == 1 else f"{stem}-{number}")
