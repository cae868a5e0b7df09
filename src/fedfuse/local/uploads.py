"""Uploads in fewer bits: a client packs its model after its local work, and vetting knows what to expect.

Every engine runs `attempt`, which calls `pack`, so that all of them send and fuse the same bits.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from fedfuse import packing
from fedfuse.context import Context
from fedfuse.models.precision import Precision
from fedfuse.packing import FULL, UploadOf
from fedfuse.types import Extras, FedfuseError, Groups, PackedModel, Snapshot, Task, Tensors, Update

RESIDUAL = "upload/residual"  # in a client's memory: what the client's last upload lost, by weight


def upload_of(precision: Precision, ctx: Context) -> UploadOf:
    """Return what this client packs. A one-bit net is its binarised weights: there is no difference to send."""
    return "model" if precision.one_bit is not None else ctx.local.upload_of


def without_residual(memory: Groups) -> Groups:
    """Return the memory of the algorithm alone."""
    return {group: tensors for group, tensors in memory.items() if group != RESIDUAL}


def pack(update: Update, task: Task, memory: Groups, ctx: Context) -> Update:
    """Return the update as this client sends it. With error feedback, its memory holds what this upload loses."""
    precision = ctx.precision(task.client)
    if precision.upload == FULL:
        return update
    if update.model is None:
        raise FedfuseError(f"sends no model that could be packed as {precision.upload}: leave local.upload out")
    model, of = update.model, upload_of(precision, ctx)
    names = precision.packed_weights(ctx.nets.scratch(model.arch))
    weights = {name: _to_send(name, model, task, memory.get(RESIDUAL, {}), of) for name in names}
    codes, scales = packing.pack(weights, precision.upload)
    rest = {name: tensor for name, tensor in model.params.items() if name not in codes}
    packed = PackedModel(model.arch, precision.upload, of, rest, model.buffers, codes, scales)
    own_memory = update.memory
    if ctx.local.error_feedback:
        sent = packing.unpack(codes, scales, weights, precision.upload)
        own_memory = {**own_memory, RESIDUAL: {name: weight - sent[name] for name, weight in weights.items()}}
    return replace(update, model=None, packed=packed, memory=own_memory)


def _to_send(name: str, model: Snapshot, task: Task, residual: Tensors, of: UploadOf) -> Tensor:
    """Return the weight, or its difference from the received one, with what the client's last upload lost."""
    weight = model.params[name]
    if of == "difference":
        if task.model is None:
            raise FedfuseError('was sent no model to differ from: set local.upload_of = "model"')
        weight = weight - task.model.params[name]
    return weight + residual[name] if name in residual else weight


def expected(template: Snapshot, client: int, ctx: Context) -> Extras | None:
    """Return what the groups of this client's packed model must hold; None where it sends its model as it is."""
    precision = ctx.precision(client)
    if precision.upload == FULL:
        return None
    net = ctx.nets.scratch(template.arch)
    return packing.specs(template, precision.packed_weights(net), precision.upload)


def describe(upload: str, of: str) -> str:
    """Return a packing in words: `int8 weights`."""
    return f"{upload} {'weights' if of == 'model' else 'differences'}"


def refuse_packing(ctx: Context, sends: str) -> None:
    """Raise an error if a client would pack its model, for an algorithm whose clients send something else."""
    for client, precision in enumerate(ctx.precisions):
        if precision != Precision():
            how = "a one-bit net" if precision.one_bit else f"an upload as {precision.upload}"
            raise FedfuseError(
                f"client {client} has {how}, but {sends}: leave it out of models.clients and local.upload"
            )


def check_uploads(ctx: Context) -> None:
    """Raise an error for precisions that do not fit the nets, and for settings that would have no effect."""
    for arch, precision in dict.fromkeys((a, ctx.precision(k)) for k, a in enumerate(ctx.archs)):
        if precision.upload != FULL and not precision.packed_weights(ctx.nets.scratch(arch)):
            raise FedfuseError(
                f"{arch} has no weights that an upload as {precision.upload} would pack: choose another local.upload"
                ", or a net with more layers"
            )
    packed = [precision for precision in ctx.precisions if precision.upload != FULL]
    if ctx.local.error_feedback and not packed:
        raise FedfuseError(
            "local.error_feedback = true has no effect: clients upload float32, which loses nothing; set local.upload"
        )
    if ctx.local.upload_of == "difference" and not any(upload_of(p, ctx) == "difference" for p in packed):
        raise FedfuseError(
            'local.upload_of = "difference" has no effect: clients upload float32 or one-bit nets; set local.upload'
        )
