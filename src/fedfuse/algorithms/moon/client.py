"""MOON's clients: the contrastive loss, and the model that a client keeps for its next round."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfuse import bounds
from fedfuse.compute.batches import Batch, autocast_of, for_loss
from fedfuse.context import Context
from fedfuse.local.reports import LocalResult
from fedfuse.local.terms import Local
from fedfuse.models.classifier import Layer, trunk_and_head
from fedfuse.types import Groups, Snapshot

PREVIOUS = "previous/params", "previous/buffers"  # in a client's memory: the model of its last round


@dataclass(frozen=True)
class ModelContrast:
    """Cross entropy plus mu times MOON's contrast: features near the received model's, far from the previous one's.

    With z the features of the batch, the contrast is the mean of

        -log( exp(cos(z, z_received) / tau) / (exp(cos(z, z_received) / tau) + exp(cos(z, z_previous) / tau)) )

    The two are one term because both need the features, and a second forward pass would count each batch twice in the
    batch-norm statistics. The frozen nets run in eval mode, as in the released code.
    """

    mu: float
    temperature: float

    def __post_init__(self) -> None:
        bounds.not_negative(self, "0 is FedAvg", mu=self.mu)
        bounds.positive(self, temperature=self.temperature)

    def __call__(self, net: nn.Module, x: Batch, y: Tensor, local: Local) -> Tensor:
        trunk, head = local.once("trunk", lambda: trunk_and_head(net))
        with autocast_of(net):
            features = trunk(x)  # (B, width)
            logits = head(features)
        loss = F.cross_entropy(for_loss(logits), y)
        frozen = local.once("contrast", lambda: _frozen_trunks(local))
        if frozen is None:
            return loss + self.mu * math.log(2)  # the received model is the previous one too: no gradient
        with torch.no_grad(), autocast_of(net):
            others = [frozen_trunk(x) for frozen_trunk in frozen]
        own = for_loss(features)
        similar = torch.stack([F.cosine_similarity(own, for_loss(z)) for z in others], 1) / self.temperature  # (B, 2)
        return loss + self.mu * F.cross_entropy(similar, torch.zeros_like(y))


def _frozen_trunks(local: Local) -> tuple[Layer, Layer] | None:
    """Return the trunks of the received model and of the client's previous one; None in its first round."""
    params, buffers = (local.memory.get(group) for group in PREVIOUS)
    if params is None:
        return None
    assert local.received is not None, "Training sets what was received"
    assert local.nets is not None, "Training sets its nets"
    previous = Snapshot(local.received.arch, params, buffers or {})
    received, last = local.nets.load(local.received, "received"), local.nets.load(previous, "previous")
    return trunk_and_head(received.eval())[0], trunk_and_head(last.eval())[0]


@dataclass(frozen=True)
class PastModel:
    """The client keeps its model for the contrast of its next round, and sends nothing more."""

    def __call__(self, result: LocalResult, ctx: Context) -> tuple[Groups, Groups]:
        return {}, dict(zip(PREVIOUS, (result.model.params, result.model.buffers), strict=True))
