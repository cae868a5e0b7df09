"""All kinds of faults."""

from __future__ import annotations

from collections.abc import Mapping

from tests.faults import disk, fusions, inputs, mutations, uploads
from tests.faults.tally import Kind

KINDS: Mapping[str, Kind] = {
    "kills": disk.kills,
    "full-disks": disk.full_disks,
    "run-directories": mutations.runs,
    "caches": mutations.caches,
    "sweeps": mutations.sweeps,
    "logit-caches": fusions.logit_caches,
    "students": fusions.students,
    "hugging-face-folders": fusions.hugging_face_folders,
    "uploads": uploads.blobs,
    "packed-uploads": uploads.packed_blobs,
    "weights": uploads.weights,
    "settings": inputs.settings,
    "data": inputs.data,
}
