"""Checks of a net before any training: it is built, fits into memory, takes the data, and gives finite logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fedfuse import bounds, rng, tree
from fedfuse.compute.batches import Batch, forward, length
from fedfuse.models import shared_head, split
from fedfuse.models.catalogue import TEXT_NETS, build, names
from fedfuse.models.classifier import Shape, zeros
from fedfuse.types import FedfuseError

COPIES = 3  # of a model while it is trained: parameters, gradients, the server's
_DRAWS = frozenset({nn.init.normal_, nn.init.uniform_, Tensor.normal_, Tensor.uniform_})


def check(name: str, classes: int, shape: Shape, samples: Mapping[str, Batch] | None = None) -> None:
    """Raise a FedfuseError unless `name` gives a net that classifies inputs of this shape.

    The weights of this trial come from a separate generator. samples: inputs to try, by what
    they are; by default two of zeros.
    """
    for sample in (samples or {}).values():
        _check_kind(name, shape, sample)
    _check_size(name, classes, shape)
    with rng.ambient(rng.generator(0, "models.check")), torch.no_grad():
        try:
            net = build(name, classes=classes, shape=shape).eval()
        except FedfuseError:
            raise
        except (Exception, SystemExit) as error:  # a number that no tensor's size can be, a user's factory
            reason = _first_line(error)
            raise FedfuseError(
                f"{name} cannot be built for {classes} classes and inputs of shape {shape} ({type(error).__name__}:"
                f" {reason}): choose another net"
            ) from error
        for what, inputs in (samples or {f"2 inputs of shape {shape}": zeros(net, shape, 2)}).items():
            _check_outputs(name, net, inputs, what, classes)


def _check_outputs(name: str, net: nn.Module, inputs: Batch, what: str, classes: int) -> None:
    try:
        logits = forward(net, inputs)
    except (Exception, SystemExit) as error:  # a user's net may raise anything, and even leave the program
        raise FedfuseError(
            f"{name} fails on {what} ({type(error).__name__}: {_first_line(error)}): choose a net for these inputs, or "
            "change the data"
        ) from error
    output, count = tuple(logits.shape), length(inputs)
    if output != (count, classes):
        raise FedfuseError(
            f"{name} gives {output} for {count} inputs: with {classes} classes it must give {(count, classes)}"
        )
    if not logits.is_floating_point() or not tree.all_finite(logits):
        kind = "outputs that are not finite" if logits.is_floating_point() else f"outputs of {logits.dtype}"
        raise FedfuseError(f"{name} gives {kind} before any training: choose a net that gives finite logits")


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def _check_kind(name: str, shape: Shape, sample: Batch) -> None:
    """Refuse a net for texts where there are images or features, and the other way round."""
    base = shared_head.split(name.partition(split.MARK)[0])[0].partition(":")[0]
    if base in TEXT_NETS and isinstance(sample, Tensor):
        raise FedfuseError(
            f"{name} reads texts, but the data has images or features of shape {shape}: choose mlp:64-32 or, for "
            "images, resnet8"
        )
    if base in names() - TEXT_NETS.keys() and not isinstance(sample, Tensor):
        raise FedfuseError(
            f"{name} takes images or features, but the data has {', '.join(sample)}: choose a net for texts, one of "
            f"{', '.join(TEXT_NETS)} or hf:<id or folder>"
        )


class _Unfilled(TorchFunctionMode):
    """Leaves weights without values: on tensors without memory, drawing them would load PyTorch's compiler (2 s)."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in _DRAWS:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


def _check_size(name: str, classes: int, shape: Shape) -> None:
    """Refuse a net whose training would not fit into this machine's memory. It is built without memory."""
    memory = bounds.machine_memory()
    try:
        with rng.ambient(rng.generator(0, "models.check")), torch.device("meta"), _Unfilled():
            net = build(name, classes=classes, shape=shape)
    except (RuntimeError, OverflowError) as error:  # a number of elements that no integer holds
        raise FedfuseError(f"{name} is too large to build ({error}): choose a smaller net") from error
    except FedfuseError:
        raise
    except (Exception, SystemExit):  # a user's factory need not work without memory
        return
    size = sum(t.numel() * t.element_size() for t in (*net.parameters(), *net.buffers()))
    if COPIES * size > memory:
        raise FedfuseError(
            f"{name} takes {size / 2**30:,.1f} GiB, and training {COPIES} times that; this machine has "
            f"{memory / 2**30:,.1f} GiB: choose a smaller net"
        )
