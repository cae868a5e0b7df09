"""What a tracker holds of a run, read by the library itself where it can read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Held:
    curve: list[tuple[int, float]]  # round and test accuracy, in the order in which they were told
    names: set[str]
    settings: Mapping[str, str]


def from_tensorboard(run: Path) -> Held:
    accumulator = import_module("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(run / "tensorboard")).Reload()
    plugin = import_module("tensorboard.plugins.hparams.plugin_data_pb2")
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    given = plugin.HParamsPluginData.FromString(content).session_start_info.hparams
    settings = {key: str(getattr(value, str(value.WhichOneof("kind")))) for key, value in given.items()}
    scalars = events.Scalars("test/accuracy")
    return Held([(s.step, s.value) for s in scalars], set(events.Tags()["scalars"]), settings)


def from_mlflow(run: Path) -> Held:
    mlflow = import_module("mlflow")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{run.parent / 'mlflow.db'}")
    (run,) = [
        one
        for group in client.search_experiments()
        for one in client.search_runs([group.experiment_id])
        if one.info.run_name == run.name
    ]
    assert run.info.status == "FINISHED"
    history = client.get_metric_history(run.info.run_id, "test/accuracy")
    return Held([(m.step, m.value) for m in history], set(run.data.metrics), run.data.params)


def from_wandb(run: Path) -> Held:
    curve, names, settings, ids = [], set[str](), dict[str, str](), set[str]()
    for file in sorted(run.glob("wandb/offline-run-*/*.wandb")):
        for record in _wandb_records(file):
            if record.WhichOneof("record_type") == "run":
                ids.add(record.run.run_id)
                settings |= {item.key: str(json.loads(item.value_json)) for item in record.run.config.update}
            if record.WhichOneof("record_type") == "history":
                items = {
                    item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item
                }
                curve.append((int(items["_step"]), float(items["test/accuracy"])))
                names |= items.keys()
    assert len(ids) == 1, "a run that goes on keeps its id"
    return Held(curve, names, settings)


def _wandb_records(file: Path) -> Iterator[Any]:
    """The library has no reader in Python: after 7 bytes, LevelDB's log format in blocks of 32 KiB."""
    protocol = import_module("wandb.proto.wandb_internal_pb2")
    content, at, parts = file.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        size, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        parts += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or its last part
            yield protocol.Record.FromString(parts)
            parts = b""


READERS: Mapping[str, Callable[[Path], Held]] = {
    "tensorboard": from_tensorboard,
    "mlflow": from_mlflow,
    "wandb": from_wandb,
}
