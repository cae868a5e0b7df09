"""Where a run continues: after its newest intact checkpoint, or at the beginning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fedfuse.context import Context
from fedfuse.engines import Engine
from fedfuse.records import checkpoint, events, record
from fedfuse.records.checkpoint import Checkpoint
from fedfuse.records.directory import CHECKPOINTS, EVENTS, ROUNDS
from fedfuse.records.history import History
from fedfuse.records.lines import Lines
from fedfuse.records.record import RoundRecord
from fedfuse.records.sealed import digest
from fedfuse.records.stored import check_lines
from fedfuse.types import DamagedError, ServerState


def recover(
    ctx: Context, engine: Engine, path: Path, fingerprint: str, warn: Callable[[str], None]
) -> tuple[ServerState, History, list[str]]:
    """Return the server's state after the last finished round, the records until then, and a hash of each line.

    Clients get their memory back. Records that do not fit the checkpoint are an error.
    """
    latest, damages = checkpoint.latest(path / CHECKPOINTS, fingerprint)
    problems = [f"checkpoint {damage}" for damage in damages]
    lines = Lines.read(path / ROUNDS)
    if lines.torn:
        problems.append(f"{ROUNDS}: its last line was cut short and is dropped; the round is in the checkpoint")
    # A damaged or foreign line is an error now, not after all training.
    if any(event.run != fingerprint for event in events.read(path / EVENTS)):
        raise DamagedError(f"{path / EVENTS}: belongs to another run: restore the file, or delete it")
    if Lines.read(path / EVENTS).torn:
        problems.append(f"{EVENTS}: its last line was cut short and is dropped")
    for problem in problems:
        warn(problem)
    if latest is None:
        # Records without a checkpoint mean that the checkpoints were lost, not that the run never began.
        if lines.texts:
            raise DamagedError(f"{path / CHECKPOINTS}: no intact checkpoint is left; start over with another --out")
        (path / ROUNDS).unlink(missing_ok=True)
        return ServerState(0, ctx.initial()), History(), []
    texts = _texts(lines, latest, path / ROUNDS)
    engine.restore(latest.clients)
    record.rewrite(path / ROUNDS, texts)
    record.parse_lines(texts, path / ROUNDS)  # raises an error if a line is not the record of its round
    return latest.server, History(texts), [digest(text) for text in texts]


def _texts(lines: Lines, latest: Checkpoint, file: Path) -> list[str]:
    """Return the lines of the rounds up to the checkpoint's. The last one may be in the checkpoint only."""
    last = latest.server.round
    check_lines(lines.texts, last, latest.lines, file)
    before = list(lines.texts[: last - 1])
    if len(lines.texts) < last:
        return [*before, latest.record.line()]
    written = record.parse_lines(lines.texts[:last], file)[-1]
    if _without_costs(written) != _without_costs(latest.record):
        raise DamagedError(f"{file}, line {last}: is not as it was written: restore the file")
    return [*before, lines.texts[last - 1]]


def _without_costs(outcome: RoundRecord) -> RoundRecord:
    """The record without what is measured after its checkpoint."""
    return RoundRecord.parse(replace(outcome, seconds={}, memory={}).line())
