"""A client that is taught by the server's net (FedGKT).

It learns what the server says of its own examples, and describes them to the server: features, logits and labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfuse.context import Context
from fedfuse.local.own_model import kept, recalled
from fedfuse.local.terms import Local
from fedfuse.local.training import Training
from fedfuse.models.split import feature_shape, halves
from fedfuse.predict import BATCH, evaluating
from fedfuse.types import Extras, FedfuseError, Groups, Like, ServerState, Task, Update

SERVER = "server"  # in a task: the server's logits of the client's examples
EXAMPLES = "examples"  # in an update: features, logits, labels, in the order of the client's rows
EXTRACTOR = "extractor"  # in an update: parameters and buffers of the first stage


@dataclass(frozen=True)
class TaughtLoss:
    """CE(y, z) + alpha T^2 KL(softmax(teacher / T) || softmax(z / T)), mean of a batch; CE alone without a teacher."""

    temperature: float
    alpha: float

    def __post_init__(self) -> None:
        if not self.temperature > 0 or self.alpha < 0:
            raise FedfuseError(
                f"fedgkt(temperature={self.temperature}, alpha={self.alpha}): the temperature must be positive, alpha "
                "not negative"
            )

    def __call__(self, logits: Tensor, y: Tensor, teacher: Tensor | None) -> Tensor:  # (B, C), (B,), (B, C)
        loss = F.cross_entropy(logits, y)
        if teacher is None or self.alpha == 0:
            return loss
        said, taught = (F.log_softmax(z / self.temperature, 1) for z in (logits, teacher))
        kl = F.kl_div(said, taught, reduction="batchmean", log_target=True)
        return loss + self.alpha * self.temperature**2 * kl


@dataclass(frozen=True)
class Taught:
    """The client's loss. `y` are places among the client's examples, by which label and server's logits are found."""

    loss: TaughtLoss

    def __call__(self, net: nn.Module, x: Tensor, y: Tensor, local: Local) -> Tensor:
        teacher = local.extra[SERVER]["logits"][y] if SERVER in local.extra else None
        return self.loss(net(x), local.extra[EXAMPLES]["labels"][y], teacher)


@dataclass(frozen=True)
class TrainAndDescribe:
    """A client's round: train its own model, then say of each of its examples what the model makes of it."""

    train: Training

    def __call__(self, task: Task, memory: Groups, ctx: Context) -> Update:
        rows, train = ctx.data.parts[task.client], ctx.data.train
        labels = train.y[rows]
        # A term is given batches, not rows. With places for labels it can find what belongs to an example.
        places = torch.zeros_like(train.y).index_copy_(0, rows, torch.arange(len(rows)))
        placed = replace(ctx, data=replace(ctx.data, train=replace(train, y=places)))
        start = recalled(task.client, memory, ctx)
        extra = {**task.extra, EXAMPLES: {"labels": labels}}
        done = self.train(replace(task, model=start, extra=extra), {}, placed)
        assert done.model is not None
        net = ctx.nets.load(done.model)
        extractor, rest = halves(start.arch, net)
        with torch.no_grad(), evaluating(net):
            features = torch.cat([extractor(train.batch(index)) for index in torch.split(rows, BATCH)])
            logits = torch.cat([rest(part) for part in torch.split(features, BATCH)])
        described = {"features": features, "logits": logits, "labels": labels}
        sent = {EXAMPLES: described, EXTRACTOR: _tensors(extractor)}
        return replace(done, model=None, extra=sent, memory=kept(done.model))


@dataclass(frozen=True)
class Described:
    """Features, logits and labels, a row for each example that the client claims, and its extractor."""

    def __call__(self, server: ServerState, client: int, ctx: Context) -> Extras:
        classes, arch = ctx.nets.classes, ctx.archs[client]
        extractor, _ = halves(arch, ctx.nets.scratch(arch, "shape"))
        tensors = {
            name: replace(like, low=0.0) if name.endswith("running_var") else like
            for name, like in Like.each(_tensors(extractor)).items()
        }
        described = {
            "features": Like(("n", *shape_of_features(arch, ctx))),
            "logits": Like(("n", classes)),
            "labels": Like(("n",), torch.int64, low=0, high=classes - 1),
        }
        return {EXAMPLES: described, EXTRACTOR: tensors}


def shape_of_features(arch: str, ctx: Context) -> tuple[int, ...]:
    """What a client of this architecture sends of one example."""
    extractor, _ = halves(arch, ctx.nets.scratch(arch, "shape"))
    return feature_shape(extractor, ctx.nets.shape)


def _tensors(extractor: nn.Module) -> dict[str, Tensor]:
    return {
        name: tensor.detach().clone(memory_format=torch.contiguous_format)
        for name, tensor in extractor.state_dict().items()
    }
