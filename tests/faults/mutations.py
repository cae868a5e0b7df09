"""Damage to any file of a run directory, of a data cache and of a sweep: it is told, or it changes nothing."""

from __future__ import annotations

import json
import random
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fedfuse
from fedfuse.data import arrays
from fedfuse.export.hub_folder import export_hub_folder
from fedfuse.records.record import RoundRecord
from fedfuse.records.stored import StoredRun
from fedfuse.reports.page import report_of
from fedfuse.runs.display import Silent
from tests.command_line import models_of, rounds_of
from tests.faults.disk import tiny
from tests.faults.tally import LostError, Tally, WrongError

Mutation = Callable[[bytes, random.Random], bytes]


def _flip(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(content))
    return content[:place] + bytes([content[place] ^ (1 << draw.randrange(8))]) + content[place + 1 :]


def _not_utf_8(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(content))
    return content[:place] + b"\xff" + content[place + 1 :]


def _truncate(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def _cut(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content))
    return content[:start] + content[start + draw.randrange(1, 40) :]


def _insert(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(content) + 1)
    return content[:place] + draw.randbytes(draw.randrange(1, 20)) + content[place:]


def _digit(content: bytes, draw: random.Random) -> bytes:
    places = [m.start() for m in re.finditer(rb"\d", content)]
    if not places:
        return _flip(content, draw)
    place = draw.choice(places)
    return content[:place] + str((content[place] - 48 + draw.randrange(1, 10)) % 10).encode() + content[place + 1 :]


def _lines(change: Callable[[list[bytes], random.Random], list[bytes]]) -> Mutation:
    return lambda content, draw: b"".join(change(content.splitlines(keepends=True), draw))


def _without_line(lines: list[bytes], draw: random.Random) -> list[bytes]:
    gone = draw.randrange(len(lines))
    return lines[:gone] + lines[gone + 1 :]


def _line_twice(lines: list[bytes], draw: random.Random) -> list[bytes]:
    twice = draw.randrange(len(lines))
    return [*lines[: twice + 1], *lines[twice:]]


def _shuffled(lines: list[bytes], draw: random.Random) -> list[bytes]:
    return draw.sample(lines, len(lines))


def _nested(content: bytes, draw: random.Random) -> bytes:
    deep = b"[" * 100_000
    place = content.find(b":") + 1 if content.lstrip().startswith(b"{") else content.find(b"=") + 1
    return content[:place] + deep + content[place:]


def _other_type(content: bytes, draw: random.Random) -> bytes:
    """A value of a JSON object becomes something else; other content becomes an object."""
    try:
        first, *rest = content.decode().splitlines()
        facts = json.loads(first)
        facts[draw.choice(list(facts))] = draw.choice([None, [], {}, "x", -1, True, 1e300])
        return "\n".join([json.dumps(facts), *rest, ""]).encode()
    except (ValueError, TypeError):
        return b"{}"


def _empty(content: bytes, draw: random.Random) -> bytes:
    return b""


MUTATIONS: dict[str, Mutation] = {
    "flipped bit": _flip,
    "byte that is no UTF-8": _not_utf_8,
    "truncated": _truncate,
    "cut out": _cut,
    "inserted bytes": _insert,
    "another digit": _digit,
    "line missing": _lines(_without_line),
    "line doubled": _lines(_line_twice),
    "lines shuffled": _lines(_shuffled),
    "deep nesting": _nested,
    "another type": _other_type,
    "emptied": _empty,
}
LABELS = ("name", "workers", "track")  # of an experiment.toml: no result depends on them


def _seen(run: Path) -> dict[str, Any]:
    """Everything that reports and exports show of a run."""
    stored = StoredRun.open(run)
    table = stored.experiment.table
    for label in LABELS:
        table.pop(label, None)
        table["run"].pop(label, None)
    report_of([run])
    return {
        "experiment": table,
        "history": stored.history,
        "federation": stored.federation,
        "evaluation": stored.evaluation,
        "events": stored.events,
    }


def _compare_seen(seen: dict[str, Any], before: dict[str, Any]) -> None:
    for what, value in seen.items():
        # A missing file is a section less, and the last events may be missing as after a kill: neither is wrong.
        if value is None or (what == "events" and value == before[what][: len(value)]):
            continue
        if what == "history" and _without_last_costs(value) == _without_last_costs(before[what]):
            continue  # the last record may be the checkpoint's
        if value != before[what]:
            raise WrongError(f"{what} is shown as {str(value)[:200]}")


def _without_last_costs(history: list[RoundRecord]) -> list[RoundRecord]:
    return [*history[:-1], replace(history[-1], seconds={}, memory={})]


class _Warned(Silent):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


class _Stopped(Exception):
    pass


class _StopAfter:
    """An observer that ends a run early."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def begin(self, run: object, history: object) -> None: ...

    def round(self, record: Any) -> None:
        if record.round == self.rounds:
            raise _Stopped

    def end(self, history: object) -> None: ...


def _stopped_run(path: Path) -> Path:
    try:
        fedfuse.run(tiny(), path, observers=[_StopAfter(3)])
    except _Stopped:
        return path
    raise AssertionError("the run was to stop")


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file() and file.stat().st_size)


def runs(seed: int, amount: int, progress: Callable[[], None]) -> Tally:
    """Damage to a file of a finished or a stopped run; then report, load, export and resume it."""
    tally, draw = Tally("mutations of a run directory"), random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        finished = fedfuse.run(tiny(), folder / "finished").path
        originals = [finished, _stopped_run(folder / "stopped")]
        stranger = fedfuse.run(tiny(seed=1), folder / "stranger").path  # another run, whose files may be copied
        before = {run: _seen(run) for run in originals}
        for number in range(75 * amount):
            run = draw.choice(originals)
            file = draw.choice(_files(run)).relative_to(run)
            mutated, what = _mutated(run / file, stranger, draw)
            copy = folder / "copy"
            for action in (_report, _load_and_export, _resume):
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(run, copy)
                (copy / file).write_bytes(mutated)
                with tally.trying(f"seed {seed}, {number}: {run.name}/{file}: {what}; {action.__name__[1:]}"):
                    action(copy, run, before[run], finished)
                if not (copy / file).exists() or (copy / file).read_bytes() == mutated:  # else it was repaired
                    _check_restored(tally, copy, file, run, finished, f"{number}: {run.name}/{file}: {what}")
                progress()
    return tally


def _mutated(file: Path, stranger: Path, draw: random.Random) -> tuple[bytes, str]:
    content = file.read_bytes()
    if draw.random() < 0.1:
        several = file.parent.name in ("checkpoint", "models")
        other = draw.choice(sorted((stranger / file.parent.name).glob("*"))) if several else stranger / file.name
        return other.read_bytes(), "of another run"
    what = draw.choice(list(MUTATIONS))
    return MUTATIONS[what](content, draw), what


def _report(copy: Path, run: Path, before: dict[str, Any], finished: Path) -> None:
    _compare_seen(_seen(copy), before)


def _load_and_export(copy: Path, run: Path, before: dict[str, Any], finished: Path) -> None:
    if not (copy / "models").exists():
        return
    (file,) = (copy / "models").glob("*.safetensors")
    fedfuse.load_model(file, trust_code=True)
    hub = copy.parent / "hub"
    shutil.rmtree(hub, ignore_errors=True)
    export_hub_folder(copy, hub)
    exported = fedfuse.load_model(hub, trust_code=True)
    (own,) = (finished / "models").glob("*.safetensors")
    original = fedfuse.load_model(own, trust_code=True).net.state_dict()
    if any(not tensor.equal(original[name]) for name, tensor in exported.net.state_dict().items()):
        raise WrongError("another model is exported")


def _resume(copy: Path, run: Path, before: dict[str, Any], finished: Path) -> None:
    display = _Warned()
    fedfuse.run(tiny(), copy, resume=True, display=display)
    if models_of(copy) != models_of(finished):
        raise WrongError("resumed to another model")
    if rounds_of(copy) != rounds_of(finished):
        raise WrongError("resumed to other records")
    seconds = [record.seconds for record in StoredRun.open(copy).history][: len(before["history"]) - 2]
    if seconds != [record.seconds for record in before["history"]][: len(seconds)] and not display.warnings:
        raise WrongError("the records of finished rounds were changed")


def _check_restored(tally: Tally, copy: Path, file: Path, run: Path, finished: Path, case: str) -> None:
    """With the file restored, everything is as before: no attempt destroyed anything else."""
    (copy / file).parent.mkdir(exist_ok=True)
    shutil.copy(run / file, copy / file)
    try:
        fedfuse.run(tiny(), copy, resume=True)
        if models_of(copy) != models_of(finished) or rounds_of(copy) != rounds_of(finished):
            raise LostError("restored, it ends otherwise")
    except Exception as error:
        tally.lost += 1
        tally.cases.append(f"lost: {case}: {type(error).__name__}: {error}")


def caches(seed: int, amount: int, progress: Callable[[], None]) -> Tally:
    """Damage to a file of a folder of arrays, in which data is cached and given to workers."""
    from tests.doubles import federation

    tally, draw = Tally("mutations of a data cache"), random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        original, copy = Path(name) / "original", Path(name) / "copy"
        federation().save(original)
        before = arrays.read(original)
        for number in range(600 * amount):
            file = draw.choice(_files(original)).relative_to(original)
            what = draw.choice(list(MUTATIONS))
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(original, copy)
            (copy / file).write_bytes(MUTATIONS[what]((original / file).read_bytes(), draw))
            with tally.trying(f"seed {seed}, {number}: {file}: {what}"):
                tensors, facts = arrays.read(copy)
                if facts != before[1] or any(not t.equal(before[0][n]) for n, t in tensors.items()):
                    raise WrongError("other data is read")
            progress()
    return tally


def sweeps(seed: int, amount: int, progress: Callable[[], None]) -> Tally:
    """Damage to a file of a sweep's own; then it is continued and reported."""
    tally, draw = Tally("mutations of a sweep"), random.Random(seed)
    space = {"local.lr": "0.01..1:log"}
    experiment = tiny(rounds=1).with_settings({"data.validation": 0.2})
    with tempfile.TemporaryDirectory() as name:
        original, copy = Path(name) / "original", Path(name) / "copy"
        before = fedfuse.sweep(experiment, space, trials=2, out=original)
        own = [original / file for file in ("sweep.toml", "trials.json", "study.db")]
        for number in range(40 * amount):
            file = draw.choice(own)
            what = draw.choice(list(MUTATIONS))
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(original, copy)
            (copy / file.name).write_bytes(MUTATIONS[what](file.read_bytes(), draw))
            with tally.trying(f"seed {seed}, {number}: {file.name}: {what}"):
                report_of([copy])
                after = fedfuse.sweep(experiment, space, trials=2, out=copy)
                if [t for t in after.trials if t.state != "failed"] != list(before.trials):
                    raise WrongError(f"other trials: {after.trials}")
            progress()
    return tally
