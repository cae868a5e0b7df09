"""All kinds of faults."""

from __future__ import annotations

from collections.abc import Mapping

from tests.faults import disk, inputs, mutations, uploads
from tests.faults.tally import Kind

KINDS: Mapping[str, Kind] = {
    "kills": disk.kills,
    "full-disks": disk.full_disks,
    "run-directories": mutations.runs,
    "caches": mutations.caches,
    "sweeps": mutations.sweeps,
    "uploads": uploads.blobs,
    "packed-uploads": uploads.packed_blobs,
    "weights": uploads.weights,
    "settings": inputs.settings,
    "data": inputs.data,
}
