"""Batches: one tensor, or a mapping of tensors with a common first dimension (`input_ids`, `attention_mask`, ...)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fedfuse.types import FedfuseError

Batch = Tensor | Mapping[str, Tensor]
B = TypeVar("B", Tensor, Batch)
MASK = "attention_mask"
PINS = ("cuda", "xpu")  # devices that copy from pinned memory while they compute
_PRECISION = "_fedfuse_precision"
_NOTHING = nullcontext()


def forward(net: nn.Module, batch: Batch) -> Tensor:
    """Return the net's logits. A mapping is passed by keywords; outputs of transformers are unwrapped."""
    with autocast_of(net):
        output = call(net, batch)
    if isinstance(output, Tensor):
        return for_loss(output)
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(logits, Tensor):
        return for_loss(logits)
    raise FedfuseError(
        f"{type(net).__name__} returned a {type(output).__name__} without logits: a net returns a tensor of logits "
        "(B, C), or an object with .logits"
    )


def call(module: nn.Module, batch: Batch) -> Any:
    """Return what the module returns: for the logits of a whole net use `forward`. A mapping is passed by keywords."""
    return module(batch) if isinstance(batch, Tensor) else module(**batch)


def as_called(x: Tensor | None, inputs: Mapping[str, Tensor]) -> Batch:
    """Return the batch with which a module was called: one tensor, or a mapping by keywords."""
    if x is None:
        return inputs
    return {"x": x, **inputs} if inputs else x


def set_precision(net: nn.Module, dtype: torch.dtype) -> None:
    """Let `forward` compute this net in `dtype` where that is safe, by autocast."""
    setattr(net, _PRECISION, dtype)


def is_float16(net: nn.Module) -> bool:
    """Return whether `forward` computes this net in float16, so that its loss must be scaled."""
    return net.__dict__.get(_PRECISION) is torch.float16


def for_loss(output: Tensor) -> Tensor:
    """Return outputs in float16 as float32: a scaled loss would exceed float16's range."""
    return output.float() if output.dtype is torch.float16 else output


def autocast_of(net: nn.Module) -> AbstractContextManager[Any]:
    """Return autocast as set for this net; else a context that does nothing."""
    dtype = net.__dict__.get(_PRECISION)
    if dtype is None:
        return _NOTHING
    return torch.autocast(next(net.parameters()).device.type, dtype)


def to_device(batch: B, device: torch.device | str) -> B:
    """Return the batch on this device."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}


def length(batch: Batch) -> int:
    """Return the number of rows."""
    return len(batch) if isinstance(batch, Tensor) else len(next(iter(batch.values())))


def rows_of(batch: Batch, index: Tensor) -> Batch:
    """Return the rows at `index` (B,). Padding that none of them needs is cut off."""
    rows = select_rows(batch, index)
    return rows if isinstance(rows, Tensor) else trim_padding(rows)


def nbytes(batch: Batch) -> int:
    """Return the size of the batch in bytes."""
    return sum(tensor.nbytes for tensor in ([batch] if isinstance(batch, Tensor) else batch.values()))


def pin(batch: B, device: torch.device) -> B:
    """Return the batch in pinned memory, from which copies to this device need no wait, if it takes such copies."""
    if device.type not in PINS:
        return batch
    if isinstance(batch, Tensor):
        return batch.pin_memory()
    return {name: tensor.pin_memory() for name, tensor in batch.items()}


def copy_rows(batch: Batch, index: Tensor) -> Batch:
    """Return copies of the rows at `index` (B,). On the CPU, index_select takes a fraction of the time of x[index]."""
    if isinstance(batch, Tensor):
        return batch.index_select(0, index)
    return {name: tensor.index_select(0, index) for name, tensor in batch.items()}


def select_rows(batch: Batch, index: Tensor) -> Batch:
    """Return the rows at `index` (B,), with all columns."""
    return batch[index] if isinstance(batch, Tensor) else {name: tensor[index] for name, tensor in batch.items()}


def trim_padding(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Cut columns that are padding in every row, if there is an attention mask (B, L) to say so."""
    mask = batch.get(MASK)
    if mask is None or mask.dim() != 2:
        return dict(batch)
    return columns_up_to(batch, int(sequence_lengths(mask).max())) if len(mask) else dict(batch)


def columns_up_to(batch: Mapping[str, Tensor], longest: int) -> dict[str, Tensor]:
    """Cut all columns of sequences but the first `longest`, at least one."""
    shape = batch[MASK].shape
    return {name: t[:, : max(1, longest)] if t.shape == shape else t for name, t in batch.items()}


def sequence_lengths(mask: Tensor) -> Tensor:
    """Return the place after the last 1 of each row of an attention mask (B, L): what lies behind is padding."""
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return (mask != 0).mul(places).amax(1)


def lengths_of(batch: Batch, rows: Tensor) -> Tensor | None:
    """Return the lengths (n,) of the sequences at `rows` (n,); None without an attention mask."""
    mask = None if isinstance(batch, Tensor) else batch.get(MASK)
    return None if mask is None or mask.dim() != 2 else sequence_lengths(mask[rows])


def images_of(batch: Batch) -> Tensor:
    """Return the batch as images to augment."""
    if isinstance(batch, Tensor):
        return batch
    raise FedfuseError(f"only images are augmented, and the inputs are {', '.join(batch)}: leave augment out")
