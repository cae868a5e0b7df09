"""FedGKT's clients: each learns the server's logits of its own examples, and sends features, logits and labels."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfuse import bounds
from fedfuse.compute.batches import Batch, autocast_of, call, forward
from fedfuse.compute.feed import Feed
from fedfuse.context import Context
from fedfuse.data.examples import Examples
from fedfuse.local.own_model import own_model, own_model_memory
from fedfuse.local.terms import Local
from fedfuse.local.training import Training
from fedfuse.local.uploads import refuse_packing
from fedfuse.models.split import feature_shape, halves
from fedfuse.predict import BATCH, evaluating
from fedfuse.types import Extras, Groups, ServerState, Task, TensorSpec, Update, host_copy

SERVER = "server"  # in a task: the server's logits of the client's examples
EXAMPLES = "examples"  # in an update: features, logits, labels, in the order of the client's rows
SEEN = "seen"  # in the client's memory: a digest of the examples whose features it sent last
EXTRACTOR = "extractor"  # in an update: parameters and buffers of the first stage


@dataclass(frozen=True)
class TransferLoss:
    """CE(y, z) + alpha T^2 KL(softmax(teacher / T) || softmax(z / T)), batch mean; only CE without a teacher."""

    temperature: float
    alpha: float

    def __post_init__(self) -> None:
        bounds.positive("fedgkt", temperature=self.temperature)
        bounds.not_negative("fedgkt", alpha=self.alpha)

    def __call__(self, logits: Tensor, y: Tensor, teacher: Tensor | None) -> Tensor:  # (B, C), (B,), (B, C)
        loss = F.cross_entropy(logits, y)
        if teacher is None or self.alpha == 0:
            return loss
        student_log, teacher_log = (F.log_softmax(z / self.temperature, 1) for z in (logits, teacher))
        kl = F.kl_div(student_log, teacher_log, reduction="batchmean", log_target=True)
        return loss + self.alpha * self.temperature**2 * kl


@dataclass(frozen=True)
class TransferTerm:
    """The client's loss. `y` are positions among its examples, which index labels and the server's logits."""

    loss: TransferLoss

    def __call__(self, net: nn.Module, x: Batch, y: Tensor, local: Local) -> Tensor:
        labels = local.once("labels", lambda: local.extra[EXAMPLES]["labels"].to(y.device))
        teacher = None
        if SERVER in local.extra:
            teacher = local.once("logits", lambda: local.extra[SERVER]["logits"].to(y.device))[y]
        return self.loss(forward(net, x), labels[y], teacher)


@dataclass(frozen=True)
class TrainAndSendFeatures:
    """A client's round: train its own model, then send its features, logits and labels of each of its examples."""

    train: Training

    def check(self, ctx: Context) -> None:
        refuse_packing(ctx, "fedgkt's clients send features and logits, not their model")

    def __call__(self, task: Task, memory: Groups, ctx: Context) -> Update:
        rows, train = ctx.data.parts[task.client], ctx.data.train
        labels = train.y[rows]
        # A term gets batches without row numbers. With positions as labels, it can look up what belongs to an example.
        positions = torch.zeros_like(train.y).index_copy_(0, rows, torch.arange(len(rows)))
        by_position = replace(ctx, data=replace(ctx.data, train=replace(train, y=positions)))
        start, digest = own_model(task.client, memory, ctx), _digest(train, rows)
        extra = {**task.extra, EXAMPLES: {"labels": labels}}
        if SEEN in memory and not torch.equal(memory[SEEN]["digest"], digest):
            extra.pop(SERVER, None)  # the server's logits are of examples that the client no longer has
        update = self.train(replace(task, model=start, extra=extra), {}, by_position)
        assert update.model is not None
        net = ctx.nets.load(update.model)
        extractor, rest = halves(start.arch, net)
        with torch.no_grad(), evaluating(net), autocast_of(net):
            device = ctx.nets.device
            fed = Feed(train, rows, device)(torch.split(torch.arange(len(rows)), BATCH))
            features = torch.cat([call(extractor, x).float().cpu() for x, _ in fed])
            logits = torch.cat([rest(part.to(device)).float().cpu() for part in torch.split(features, BATCH)])
        examples = {"features": features, "logits": logits, "labels": labels}
        content = {EXAMPLES: examples, EXTRACTOR: _tensors(extractor)}
        memory = {**own_model_memory(update.model), SEEN: {"digest": digest}}
        return replace(update, model=None, extra=content, memory=memory)


@dataclass(frozen=True)
class ExpectFeatures:
    """Expects features, logits and labels, with a row for each example that the client claims, and its extractor."""

    def __call__(self, server: ServerState, client: int, ctx: Context) -> Extras:
        classes, arch = ctx.nets.classes, ctx.archs[client]
        extractor, _ = halves(arch, ctx.nets.scratch(arch, "shape"))
        tensors = {
            name: replace(spec, low=0.0) if name.endswith("running_var") else spec
            for name, spec in TensorSpec.each(_tensors(extractor)).items()
        }
        examples = {
            "features": TensorSpec(("n", *shape_of_features(arch, ctx))),
            "logits": TensorSpec(("n", classes)),
            "labels": TensorSpec(("n",), torch.int64, low=0, high=classes - 1),
        }
        return {EXAMPLES: examples, EXTRACTOR: tensors}


def shape_of_features(arch: str, ctx: Context) -> tuple[int, ...]:
    """Return the shape of the features that a client of this architecture sends for one example."""
    extractor, _ = halves(arch, ctx.nets.scratch(arch, "shape"))
    return feature_shape(extractor, ctx.nets.shape)


def _digest(train: Examples, rows: Tensor) -> Tensor:
    """Return a SHA-256 (32,) of these rows' inputs and labels: a client's data may change between rounds."""
    digest = hashlib.sha256(train.y[rows].numpy().tobytes())
    for chunk in torch.split(rows, BATCH):
        x = train.x[chunk] if isinstance(train.x, Tensor) else torch.cat([t[chunk].flatten() for t in train.x.values()])
        digest.update(x.contiguous().numpy().tobytes())
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)


def _tensors(extractor: nn.Module) -> dict[str, Tensor]:
    return {name: host_copy(tensor) for name, tensor in extractor.state_dict().items()}
