"""A client that exchanges soft labels of public data (DS-FL): it learns those of all, and sends its own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from fedfuse.algorithms.ds_fl.server import GLOBAL, PREDICTED, PublicRows
from fedfuse.context import Context
from fedfuse.fusion.distillers import Distiller
from fedfuse.fusion.labelling import SoftLabels
from fedfuse.fusion.table import outputs
from fedfuse.fusion.target import entropy
from fedfuse.local.own_model import kept, recalled
from fedfuse.local.training import Training
from fedfuse.types import Groups, Snapshot, Task, Update


@dataclass(frozen=True)
class LearnTrainPredict:
    """A client's round: the global soft labels, then its own data, then its predictions. It keeps its model."""

    public: PublicRows
    learn: Distiller
    train: Training = field(default_factory=Training)

    def __call__(self, task: Task, memory: Groups, ctx: Context) -> Update:
        start = recalled(task.client, memory, ctx)
        if GLOBAL in task.extra:
            start = self._taught(start, task, ctx)
        done = self.train(replace(task, model=start), {}, ctx)
        assert done.model is not None
        pool, rows = self.public(task.round, ctx)
        logits = outputs(ctx.nets.load(done.model), pool, rows, f"client {task.client}")
        sent = {PREDICTED: {"probs": torch.softmax(logits, 1)}}
        return replace(done, model=None, extra=sent, memory=kept(done.model))

    def _taught(self, model: Snapshot, task: Task, ctx: Context) -> Snapshot:
        probs, of = task.extra[GLOBAL]["probs"], int(task.extra[GLOBAL]["round"])
        pool, rows = self.public(of, ctx)
        net = ctx.nets.load(model)
        labels = SoftLabels(rows, probs, entropy(probs))
        self.learn(net, pool, labels, None, lambda what: ctx.rng(f"lesson {what}", task.round, task.client))
        return Snapshot.of(model.arch, net)
