"""Find where a run continues: after its newest intact checkpoint, or at the beginning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedfuse.context import Context
from fedfuse.engines import Engine
from fedfuse.records import checkpoint, record
from fedfuse.records.directory import CHECKPOINTS, ROUNDS
from fedfuse.records.record import RoundRecord
from fedfuse.types import FedfuseError, ServerState


def recover(
    ctx: Context, engine: Engine, path: Path, warn: Callable[[str], None]
) -> tuple[ServerState, list[RoundRecord]]:
    """Restore the clients' memory. Return the server's state after the last finished round, and the records so far."""
    latest, problems = checkpoint.latest(path / CHECKPOINTS)
    for problem in problems:
        warn(f"checkpoint {problem}")
    records = record.read(path / ROUNDS)
    if latest is None:
        # Records without a checkpoint mean that the checkpoints are lost, not that the run never began.
        if problems or records:
            raise FedfuseError(f"{path / CHECKPOINTS}: no intact checkpoint is left; start again with another --out")
        (path / ROUNDS).unlink(missing_ok=True)
        return ServerState(0, ctx.initial()), []
    assert latest.record is not None
    engine.restore(latest.clients)
    last = latest.server.round
    on_file = [r for r in records if r.round == last]
    history = [*(r for r in records if r.round < last), on_file[0] if on_file else latest.record]
    record.rewrite(path / ROUNDS, history)
    return latest.server, history
