"""TensorBoard: event files in `<run>/tensorboard`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from uuid import uuid4

from fedfuse.tracking.scalars import Parameters

FOLDER = "tensorboard"


class TensorBoard:
    """`tensorboard --logdir runs` shows all runs in `runs` side by side."""

    buffers = False

    def open(self, path: Path, known: str | None, parameters: Parameters) -> str:
        board = import_module("torch.utils.tensorboard")
        continues = known is not None and any((path / FOLDER).glob("events.*"))
        self._writer = board.SummaryWriter(str(path / FOLDER))
        if not continues:
            # Not `add_hparams`, which would write them to a separate run.
            summaries = import_module("torch.utils.tensorboard.summary").hparams(
                dict(parameters), {"test/accuracy": None, "validation/accuracy": None}
            )
            for summary in summaries:
                self._writer.file_writer.add_summary(summary)
        return known if known is not None and continues else uuid4().hex

    def log(self, round: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, round)
        self._writer.flush()

    def close(self, finished: bool) -> None:
        self._writer.close()
