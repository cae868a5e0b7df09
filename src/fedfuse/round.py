"""One round, top to bottom: select -> brief -> local work -> vet -> fuse -> evaluate -> record.

The checkpoint that follows is the run's (`experiment.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from fedfuse import tree
from fedfuse.algorithm import Algorithm
from fedfuse.context import Context
from fedfuse.engines import Engine
from fedfuse.evaluate import evaluate, examine
from fedfuse.records.record import Clock, RoundRecord
from fedfuse.types import Failure, ServerState, Task, Update
from fedfuse.vet import QuorumNotMet, Vetted, Vetting

OnAnswer = Callable[[int], None]


def run_round(
    algorithm: Algorithm,
    server: ServerState,
    engine: Engine,
    cohort: list[int],
    rules: Vetting,
    ctx: Context,
    on_answer: OnAnswer = lambda client: None,
) -> tuple[ServerState, RoundRecord]:
    """Ask the cohort, fuse what it answers, measure the result. A round below its quorum changes nothing."""
    clock, down, note = Clock(), Sent(), None
    tasks = (down.count(algorithm.brief(server, client, ctx)) for client in cohort)
    answers = watch(engine.run(algorithm, tasks, ctx, server), clock, on_answer)
    expect = partial(algorithm.expect, server, ctx=ctx)
    updates = Vetted(answers, cohort, server, rules, ctx, expect, down.modelled)  # a stream: one update at a time
    try:
        with clock.stage("fuse"):
            fused, facts = algorithm.fuse(server, updates, ctx)
        engine.settle(updates.accepted)
    except QuorumNotMet as shortfall:
        engine.settle(())
        fused, facts, note = ServerState(server.round + 1, server.models, server.memory), {}, f"unchanged: {shortfall}"
    with clock.stage("evaluate"):
        examined = {arch: examine(ctx.nets.load(model), ctx.data.test) for arch, model in fused.models.items()}
        scores = {arch: score for arch, (score, _) in examined.items()}
        validation = validated(fused, ctx)
    return fused, RoundRecord(
        round=fused.round,
        cohort=cohort,
        test_accuracy=sum(scores[arch].accuracy for arch in ctx.reported) / len(ctx.reported),
        test_loss=sum(scores[arch].loss for arch in ctx.reported) / len(ctx.reported),
        models={arch: {"accuracy": s.accuracy, "loss": s.loss} for arch, s in scores.items()},
        params_up=updates.params_up,
        params_down=down.params,
        bytes_up=updates.bytes_up,
        bytes_down=down.bytes,
        seconds=clock.seconds,
        validation_accuracy=validation,
        clients={str(client): facts for client, facts in sorted(updates.clients.items())},
        rejected={str(client): reason for client, reason in sorted(updates.rejected.items())},
        note=note,
        facts=facts,
        details={arch: details for arch, (_, details) in examined.items()},
    )


def validated(server: ServerState, ctx: Context) -> float | None:
    """The mean accuracy of the reported models on the server's validation data: for choosing, as test data is not."""
    if not len(ctx.data.validation):
        return None
    each = [evaluate(ctx.nets.load(server.models[arch]), ctx.data.validation).accuracy for arch in ctx.reported]
    return sum(each) / len(each)


class Sent:
    """Counts what goes down to the clients, and notes who was sent a model."""

    def __init__(self) -> None:
        self.params = self.bytes = 0
        self.modelled: set[int] = set()

    def count(self, task: Task) -> Task:
        if task.model is not None:
            self.modelled.add(task.client)
        for group in task.groups():
            self.params += tree.count(group)
            self.bytes += tree.nbytes(group)
        return task


def watch(answers: Iterable[Update | Failure], clock: Clock, on_answer: OnAnswer) -> Iterator[Update | Failure]:
    """The same stream; the time spent waiting for it is the clients' work, and each answer is announced."""
    stream = iter(answers)
    while True:
        with clock.stage("local"):
            answer = next(stream, None)
        if answer is None:
            return
        on_answer(answer.client)
        yield answer
