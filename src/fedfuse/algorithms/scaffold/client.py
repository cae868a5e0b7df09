"""SCAFFOLD's clients: gradients corrected by control variates, and the change of the client's own variate."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfuse import tree
from fedfuse.compute.batches import Batch
from fedfuse.context import Context
from fedfuse.local.reports import LocalResult
from fedfuse.local.terms import Local
from fedfuse.local_settings import LocalSettings
from fedfuse.types import FedfuseError, Groups

CONTROL = "control"  # the group of a control variate: in a task c, in a client's memory c_i, in an update its change


@dataclass(frozen=True)
class ControlVariate:
    """The correction <c - c_i, w>, a term whose gradient is c - c_i."""

    def __call__(self, net: nn.Module, x: Batch, y: Tensor, local: Local) -> Tensor:
        corrections = local.once(CONTROL, lambda: _corrections(net, local))
        products = [(c * p).sum() for c, p in zip(corrections, net.parameters(), strict=True)]
        return sum(products[1:], products[0])


def _corrections(net: nn.Module, local: Local) -> list[Tensor]:
    """Return c - c_i for each parameter, in its memory format. A client's first c_i is 0."""
    server, own = local.extra[CONTROL], local.memory.get(CONTROL)
    return [
        torch.empty_like(p, requires_grad=False).copy_(server[name] if own is None else server[name] - own[name])
        for name, p in net.named_parameters()
    ]


@dataclass(frozen=True)
class ControlChange:
    """Option II: c_i+ = c_i - c + (x - y) / (K eta). The client keeps c_i+ and sends its change.

    (x - y) / (K eta) is the mean of the K gradients of the steps, which were corrected by c - c_i. With momentum, the
    steps add up to more than K gradients, and with a schedule they have different rates: see `path_length`.
    """

    def __call__(self, result: LocalResult, ctx: Context) -> tuple[Groups, Groups]:
        received = result.task.model
        if received is None:
            raise FedfuseError(f"client {result.task.client} was sent no model to train: brief it with send_control")
        # With float16, all steps may be skipped: then x = y.
        scale = 1 / path_length(ctx.rate, max(1, result.steps), ctx.local)
        mean_gradient = tree.map_trees(lambda x, y: (x - y) * scale, received.params, result.model.params)
        change = tree.subtract(mean_gradient, result.task.extra[CONTROL])
        own = result.memory.get(CONTROL)
        return {CONTROL: change}, {CONTROL: change if own is None else tree.map_trees(torch.add, own, change)}


def path_length(rate: float, steps: int, settings: LocalSettings) -> float:
    """Return the sum of the weights with which x - y contains the gradients of K steps: K eta for a constant rate.

    If step j has the rate eta_j, it is the sum of eta_j or, with momentum beta, of eta_j (1 - beta^j) / (1 - beta),
    j = 1..K. So (x - y) / path_length is a weighted mean of the gradients.
    """
    if settings.constant:
        return rate * gradients_followed(steps, settings.momentum)
    rest = 1 - settings.momentum
    return sum(
        rate * settings.factor(step, steps) * (1 - settings.momentum ** (step + 1)) / rest for step in range(steps)
    )


def gradients_followed(steps: int, momentum: float) -> float:
    """Return how many gradients K steps of SGD add up to: K, or the sum of (1 - beta^j) / (1 - beta), j = 1..K.

    With momentum beta, the gradient of the j-th last step is applied 1 + beta + ... + beta^(j-1) times.
    """
    rest = 1 - momentum
    return (steps - momentum * (1 - momentum**steps) / rest) / rest
