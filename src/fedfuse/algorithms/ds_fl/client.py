"""DS-FL's clients: each learns the global soft labels of public data, trains on its own, and sends its predictions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from fedfuse.algorithms.ds_fl.server import GLOBAL, PREDICTED, PublicRows
from fedfuse.context import Context
from fedfuse.fusion.distillers import Distiller
from fedfuse.fusion.labelling import SoftLabels
from fedfuse.fusion.table import logits_of
from fedfuse.fusion.target import entropy
from fedfuse.local.own_model import own_model, own_model_memory
from fedfuse.local.training import Training
from fedfuse.local.uploads import refuse_packing
from fedfuse.types import Groups, Snapshot, Task, Update


@dataclass(frozen=True)
class LearnTrainPredict:
    """A client's round: learn the global soft labels, train on its own data, predict. It keeps its model."""

    public: PublicRows
    learn: Distiller
    train: Training = field(default_factory=Training)

    def check(self, ctx: Context) -> None:
        refuse_packing(ctx, "the clients send soft labels, not their model")

    def __call__(self, task: Task, memory: Groups, ctx: Context) -> Update:
        start = own_model(task.client, memory, ctx)
        if GLOBAL in task.extra:
            start = self._distil(start, task, ctx)
        update = self.train(replace(task, model=start), {}, ctx)
        assert update.model is not None
        pool, rows = self.public(task.round, ctx)
        logits = logits_of(ctx.nets.load(update.model), pool, rows, f"client {task.client}")
        extra = {PREDICTED: {"probs": torch.softmax(logits, 1)}}
        return replace(update, model=None, extra=extra, memory=own_model_memory(update.model))

    def _distil(self, model: Snapshot, task: Task, ctx: Context) -> Snapshot:
        """Return the model after learning the global soft labels of the task."""
        probs, round_of_labels = task.extra[GLOBAL]["probs"], int(task.extra[GLOBAL]["round"])
        pool, rows = self.public(round_of_labels, ctx)
        net = ctx.nets.load(model)
        labels = SoftLabels(rows, probs, entropy(probs))
        self.learn(net, pool, labels, None, lambda what: ctx.rng(f"lesson {what}", task.round, task.client))
        return Snapshot.of(model.arch, net)
