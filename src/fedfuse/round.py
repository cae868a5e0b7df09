"""One round, top to bottom: brief -> local work -> vet -> fuse -> evaluate -> record.

Selection, before it, and checkpoints, after it, are in `runs/run.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from fedfuse import tree
from fedfuse.algorithm import Algorithm
from fedfuse.context import Context
from fedfuse.discrepancy import fuse_and_measure
from fedfuse.engines import Engine
from fedfuse.evaluate import Details, evaluate, evaluate_in_detail
from fedfuse.facts import Facts, Score
from fedfuse.records.clock import Clock
from fedfuse.records.record import RoundRecord
from fedfuse.safeguard import check_outputs, suspects, with_warnings
from fedfuse.types import Failure, NotFiniteError, ServerState, Snapshot, Task, Update
from fedfuse.vet import QuorumNotMet, VettedUpdates, Vetting

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
    """Run the cohort, fuse its updates, evaluate the result. A round below its quorum leaves the models unchanged."""
    clock, down, note = Clock(), Downloads(keep=ctx.local.upload_of == "difference"), None
    tasks = (down.count(algorithm.brief(server, client, ctx)) for client in cohort)
    answers = timed(engine.run(algorithm, tasks, ctx, server), clock, on_answer)
    expect = partial(algorithm.expect, server, ctx=ctx)
    updates = VettedUpdates(  # one in memory at a time
        answers, cohort, server, rules, ctx, expect, down.sent_model, received=down.models
    )
    try:
        with clock.stage("fuse"):
            state, facts = fuse_and_measure(algorithm.fuse, server, updates, ctx)
            check_outputs(state, ctx)
            facts = with_warnings(facts, updates.clients)
        engine.settle({client for client in updates.clients if str(client) not in facts.dropped})
    except (QuorumNotMet, NotFiniteError) as problem:
        engine.settle(())
        state, facts, note = replace(server, round=server.round + 1), Facts(), f"unchanged: {problem}"
        if isinstance(problem, NotFiniteError):
            note += f"; {suspects(updates.clients, {})}"
    scores, details, validation = evaluate_state(algorithm, state, clock, ctx)
    return state, RoundRecord(
        round=state.round,
        cohort=cohort,
        test_accuracy=sum(scores[arch].accuracy for arch in ctx.reported) / len(ctx.reported) if scores else None,
        test_loss=sum(scores[arch].loss for arch in ctx.reported) / len(ctx.reported) if scores else None,
        models=scores,
        params_up=updates.params_up,
        params_down=down.params,
        bytes_up=updates.bytes_up,
        bytes_down=down.bytes,
        seconds=clock.seconds,
        validation_accuracy=validation,
        clients={str(client): record for client, record in sorted(updates.clients.items())},
        rejected={str(client): reason for client, reason in sorted(updates.rejected.items())},
        note=note,
        facts=facts,
        details=details,
    )


def evaluate_state(
    algorithm: Algorithm, state: ServerState, clock: Clock, ctx: Context
) -> tuple[Mapping[str, Score], dict[str, Details], float | None]:
    """Return scores by architecture, details of the server's models, and the validation accuracy, if it is time."""
    if not ctx.evaluated:
        return {}, {}, None
    with clock.stage("evaluate"):
        if algorithm.scores is not None:
            scores, validation = algorithm.scores(state, ctx)
            return scores, {}, validation
        return *evaluate_models(state, ctx), validation_accuracy(state, ctx)


def evaluate_models(server: ServerState, ctx: Context) -> tuple[dict[str, Score], dict[str, Details]]:
    """Evaluate every model of the server on the test data."""
    each = {arch: evaluate_in_detail(ctx.nets.load(model), ctx.data.test) for arch, model in server.models.items()}
    return {arch: score for arch, (score, _) in each.items()}, {arch: details for arch, (_, details) in each.items()}


def validation_accuracy(server: ServerState, ctx: Context) -> float | None:
    """Return the reported models' mean accuracy on validation data, for choosing between models; None without data."""
    if not len(ctx.data.validation):
        return None
    each = [evaluate(ctx.nets.load(server.models[arch]), ctx.data.validation).accuracy for arch in ctx.reported]
    return sum(each) / len(each)


class Downloads:
    """Counts what is sent to the clients, and records who was sent a model; with `keep`, which model."""

    def __init__(self, keep: bool = False) -> None:
        self.params = self.bytes = 0
        self.sent_model: set[int] = set()
        self.models: dict[int, Snapshot] = {}
        self._keep = keep

    def count(self, task: Task) -> Task:
        if task.model is not None:
            self.sent_model.add(task.client)
            if self._keep:
                self.models[task.client] = task.model
        for group in task.groups():
            self.params += tree.count(group)
            self.bytes += tree.nbytes(group)
        return task


def timed(answers: Iterable[Update | Failure], clock: Clock, on_answer: OnAnswer) -> Iterator[Update | Failure]:
    """Yield the answers. Time spent waiting for them counts as local work; `on_answer` is called for each."""
    stream = iter(answers)
    while True:
        with clock.stage("local"):
            answer = next(stream, None)
        if answer is None:
            return
        on_answer(answer.client)
        yield answer
