"""The clients of decentralised fusion: DS-FL's, who also measure the model that nobody else has."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedfuse.algorithms.ds_fl.client import LearnTrainPredict
from fedfuse.context import Context
from fedfuse.evaluate import evaluate
from fedfuse.local.own_model import own_model
from fedfuse.types import FedfuseError, Groups, Task, Update

ACCURACY, LOSS, VALIDATION = "test_accuracy", "test_loss", "validation_accuracy"  # in an update's metrics


@dataclass(frozen=True)
class MeasuredWork:
    """A client's round, after which it measures its model on the test and the validation data of the simulation."""

    work: LearnTrainPredict

    def __call__(self, task: Task, memory: Groups, ctx: Context) -> Update:
        if not len(ctx.data.test):
            raise FedfuseError(
                f"client {task.client} has no test data, and no one else can measure its model: run "
                "decentralised-logits in a simulation"
            )
        update = self.work(task, memory, ctx)
        net = ctx.nets.load(own_model(task.client, update.memory, ctx))
        score = evaluate(net, ctx.data.test)
        metrics = {**update.metrics, ACCURACY: score.accuracy, LOSS: score.loss}
        if len(ctx.data.validation):
            metrics[VALIDATION] = evaluate(net, ctx.data.validation).accuracy
        return replace(update, metrics=metrics)
