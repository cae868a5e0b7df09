"""Check a reply against the server's template before its values are read: first its size, then its header.

The checks never allocate what a header claims. `vet` checks the values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fedfuse import codec
from fedfuse.types import Extras, FedfuseError, Snapshot, Tensors, TensorSpec, Update

SLACK = 64 * 1024  # bytes of header for facts and metrics
PER_TENSOR = 512  # bytes of header for each tensor, besides its name, which appears twice
MOST = 1 << 30  # bytes of a reply whose length only its client knows (features of its examples)

DTYPES = {  # by name in a safetensors header
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip


class Refused(FedfuseError):
    """Raised for a refused message, with the reason."""


@dataclass(frozen=True)
class Expected:
    """What a client's reply may hold: a model like this one, and these tensors besides it.

    packed: the groups of the model where the client packs it.
    """

    client: int
    model: Snapshot | None
    extras: Extras
    packed: Extras | None = None

    def update(self, blob: bytes) -> Update:
        """Decode the update after checking its size and header; raise `Refused` if a check fails."""
        self._check_size(blob)
        self._check_header(blob)
        try:
            update = codec.decode_update(blob)
        except FedfuseError as error:
            raise Refused(f"sent an update that cannot be read: {error}") from error
        if update.client != self.client:
            raise Refused(f"answered as client {update.client}")
        return update

    def _model_tensors(self) -> dict[str, TensorSpec]:
        if self.model is None:
            return {}
        groups: Extras = self.packed or {
            "model/params": TensorSpec.each(self.model.params),
            "model/buffers": TensorSpec.each(self.model.buffers),
        }
        return {key: spec for group, specs in groups.items() for key, spec in _with_keys(group, specs)}

    def _extra_tensors(self) -> dict[str, TensorSpec]:
        return {key: spec for group, specs in self.extras.items() for key, spec in _with_keys(f"extra/{group}", specs)}

    def _header_limit(self, tensors: Mapping[str, TensorSpec]) -> int:
        return SLACK + sum(PER_TENSOR + 2 * len(name.encode()) for name in tensors)

    def _check_size(self, blob: bytes) -> None:
        tensors = self._model_tensors() | self._extra_tensors()
        sizes = [_nbytes(spec) for spec in tensors.values()]
        fixed = sum(size for size in sizes if size is not None)
        most = fixed + self._header_limit(tensors) + (MOST if None in sizes else 0)
        if len(blob) > most:
            raise Refused(f"sent {len(blob):,} bytes, but its architecture needs at most {most:,}")

    def _check_header(self, blob: bytes) -> None:
        with_model = self._model_tensors() | self._extra_tensors()
        entries = _header(blob, self._header_limit(with_model))
        has_model = any(key.startswith(("model/", "packed/")) for key in entries)
        expected = with_model if has_model else self._extra_tensors()
        if set(entries) != set(expected):
            missing, more = sorted(set(expected) - set(entries)), sorted(set(entries) - set(expected))
            raise Refused(f"tensor names differ: missing {missing[:3]}, unexpected {more[:3]}")
        for key, spec in expected.items():
            _check_entry(key, entries[key], spec)


def _with_keys(group: str, specs: Mapping[str, TensorSpec]) -> Iterator[tuple[str, TensorSpec]]:
    for name, spec in specs.items():
        yield group + codec.SEPARATOR + name, spec


def _nbytes(spec: TensorSpec) -> int | None:
    """Return the size in bytes, or None if only the client knows a length."""
    size = spec.dtype.itemsize
    for length in spec.shape:
        if not isinstance(length, int):
            return None
        size *= length
    return size


def _header(blob: bytes, limit: int) -> dict[str, Any]:
    """Return the entries of a safetensors header, by name. Read only the header's own bytes."""
    if len(blob) < 8:
        raise Refused(f"sent {len(blob)} bytes, which is too short for a header")
    length = int.from_bytes(blob[:8], "little")
    if length > min(limit, len(blob) - 8):
        raise Refused(f"sent a header that claims {length:,} bytes, in a reply of {len(blob):,} bytes")
    try:
        entries = json.loads(blob[8 : 8 + length])
        entries.pop("__metadata__", None)
        return dict(entries)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise Refused(f"sent a header that cannot be read: {type(error).__name__}") from error


def _check_entry(key: str, entry: Any, spec: TensorSpec) -> None:
    if not isinstance(entry, dict) or not isinstance(entry.get("shape"), list):
        raise Refused(f"{key} has no shape in its header")
    dtype = entry.get("dtype")
    torch_dtype = DTYPES.get(dtype, dtype) if isinstance(dtype, str) else dtype
    if problem := spec.mismatch(entry["shape"], torch_dtype):
        raise Refused(f"{key} {problem}")


def check_model(sent: Snapshot, own: Tensors, buffers: Tensors) -> None:
    """Check the model that a node receives: copying it into a net would broadcast a wrong shape."""
    for received, expected in ((sent.params, own), (sent.buffers, buffers)):
        for name in {*received, *expected}:
            a, b = received.get(name), expected.get(name)
            if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype:
                raise Refused(
                    f"received a {sent.arch} whose {name} does not fit its own: install the server's versions"
                )
