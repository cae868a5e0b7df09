"""Values <-> bytes: named groups of tensors and a small JSON header, as safetensors. Never pickle.

Messages, checkpoints and client memory have the same format. Decoding checks that a blob is well formed; `vet` checks
its values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from fedfuse.types import FedfuseError, Groups, PackedModel, ServerState, Snapshot, Task, Tensors, Update

SEPARATOR = "::"  # between a group's name and a tensor's; neither may contain it
HEADER = "fedfuse"


_MALFORMED = (
    safetensors.SafetensorError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RuntimeError,  # a shape whose strides overflow; RecursionError is a subclass
    OverflowError,
)


@contextmanager
def _malformed_as_error(what: str) -> Iterator[None]:
    """Turn errors caused by malformed input into a `FedfuseError`."""
    try:
        yield
    except _MALFORMED as error:
        raise FedfuseError(f"not {what}: {type(error).__name__}: {error}") from error


def encode(groups: Groups, header: Mapping[str, Any]) -> bytes:
    """Encode groups of tensors and a JSON-serialisable header as one safetensors blob."""
    flat: dict[str, Tensor] = {}
    storages: set[int] = set()
    for group, tensors in groups.items():
        for name, tensor in tensors.items():
            key = group + SEPARATOR + name
            if key.partition(SEPARATOR) != (group, SEPARATOR, name) or SEPARATOR in name:
                raise FedfuseError(f"tensor {name!r} of group {group!r}: names must not contain {SEPARATOR!r}")
            flat[key] = tensor.detach().contiguous()
            storage = flat[key].untyped_storage().data_ptr()
            if storage in storages:  # safetensors refuses tensors that share memory
                flat[key] = flat[key].clone()
            storages.add(storage)
    # safetensors keeps neither empty groups nor the order of names, and random draws per name depend on that order.
    names = {group: list(tensors) for group, tensors in groups.items()}
    text = json.dumps({"groups": names, "header": header}, separators=(",", ":"), allow_nan=True)
    return bytes(safetensors.torch.save(flat, metadata={HEADER: text}))


def decode(blob: bytes) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Decode what `encode` wrote, with groups and names in their order. Malformed input raises a `FedfuseError`."""
    with _malformed_as_error("a fedfuse blob"):
        flat = safetensors.torch.load(blob)
        length = int.from_bytes(blob[:8], "little")
        envelope = json.loads(json.loads(blob[8 : 8 + length])["__metadata__"][HEADER])
        groups = {
            group: {name: flat.pop(group + SEPARATOR + name) for name in names}
            for group, names in envelope["groups"].items()
        }
        if flat:
            raise ValueError(f"tensors without a group: {sorted(flat)[:3]}")
        header = envelope["header"]
        if not isinstance(header, dict):
            raise TypeError("the header is not an object")
    return groups, header


def read_header(path: Path) -> dict[str, Any]:
    """Return the header of an encoded file without reading its tensors."""
    with _malformed_as_error(f"a fedfuse file: {path}"), path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > path.stat().st_size:
            raise ValueError("the header is longer than the file")
        header: dict[str, Any] = json.loads(json.loads(file.read(length))["__metadata__"][HEADER])["header"]
        return header


def _prefixed(prefix: str, groups: Groups) -> dict[str, Tensors]:
    return {f"{prefix}/{name}": tensors for name, tensors in groups.items()}


def _under(prefix: str, groups: Groups) -> dict[str, Tensors]:
    return {name.removeprefix(prefix + "/"): t for name, t in groups.items() if name.startswith(prefix + "/")}


def _model_groups(prefix: str, model: Snapshot | None) -> dict[str, Tensors]:
    return {} if model is None else {f"{prefix}/params": model.params, f"{prefix}/buffers": model.buffers}


def _model(prefix: str, arch: str | None, groups: Groups) -> Snapshot | None:
    if arch is None:
        return None
    return Snapshot(arch, groups[f"{prefix}/params"], groups[f"{prefix}/buffers"])


def encode_task(task: Task) -> bytes:
    groups = _model_groups("model", task.model) | _prefixed("extra", task.extra)
    return encode(groups, {"client": task.client, "round": task.round, "arch": task.model and task.model.arch})


def decode_task(blob: bytes) -> Task:
    groups, header = decode(blob)
    with _malformed_as_error("a task"):
        model = _model("model", header["arch"], groups)
        return Task(header["client"], header["round"], model, _under("extra", groups))


def encode_update(update: Update) -> bytes:
    """Encode what the client sends: everything but its memory."""
    header: dict[str, Any] = {
        "client": update.client,
        "num_examples": update.num_examples,
        "arch": update.model and update.model.arch,
        "metrics": dict(update.metrics),
    }
    groups = _model_groups("model", update.model)
    if (packed := update.packed) is not None:
        header |= {"arch": packed.arch, "packing": {"upload": packed.upload, "of": packed.of}}
        groups = packed.groups()
    return encode(groups | _prefixed("extra", update.extra), header)


def decode_update(blob: bytes) -> Update:
    """Decode an update. A blob that lacks a part is refused here; `vet` checks the values."""
    groups, header = decode(blob)
    with _malformed_as_error("an update"):
        if type(header["client"]) is not int or not isinstance(header["arch"], str | None):
            raise TypeError("the client is not a number or the architecture not a name")
        packed = None if "packing" not in header else _packed_model(header["arch"], header["packing"], groups)
        known = packed.groups() if packed else () if header["arch"] is None else ("model/params", "model/buffers")
        if unknown := [name for name in groups if name not in known and not name.startswith("extra/")]:
            raise ValueError(f"a group {unknown[0]!r} that no update has")
        model = None if packed else _model("model", header["arch"], groups)
        metrics = {str(name): float(value) for name, value in header["metrics"].items()}
        extra = _under("extra", groups)
        return Update(header["client"], header["num_examples"], model, extra, metrics, packed=packed)


def _packed_model(arch: object, packing: Mapping[str, object], groups: Groups) -> PackedModel:
    upload, of = packing["upload"], packing["of"]
    if not (isinstance(arch, str) and isinstance(upload, str) and isinstance(of, str)):
        raise TypeError("the architecture or the packing is not a name")
    return PackedModel(arch, upload, of, *(groups[name] for name in PackedModel.grouped(0, 0, 0, 0)))


def encode_state(server: ServerState, clients: Mapping[int, Groups], header: Mapping[str, Any]) -> bytes:
    """Encode a checkpoint: the server's models and memory, and the memory of each client."""
    groups: dict[str, Tensors] = _prefixed("memory", server.memory)
    for arch, model in server.models.items():
        groups |= _model_groups(f"models/{arch}", model)
    for client, memory in clients.items():
        groups |= _prefixed(f"clients/{client}", memory)
    archs = {key: model.arch for key, model in server.models.items()}
    state = {"round": server.round, "models": archs, "clients": list(clients)}
    return encode(groups, {**header, "state": state})


def decode_state(blob: bytes) -> tuple[ServerState, dict[int, Groups], dict[str, Any]]:
    groups, header = decode(blob)
    with _malformed_as_error("a checkpoint"):
        state = header.pop("state")
        models = {
            key: Snapshot(arch, groups[f"models/{key}/params"], groups[f"models/{key}/buffers"])
            for key, arch in state["models"].items()
        }
        clients: dict[int, Groups] = {client: _under(f"clients/{client}", groups) for client in state["clients"]}
        return ServerState(state["round"], models, _under("memory", groups)), clients, header
